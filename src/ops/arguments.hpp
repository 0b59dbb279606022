// SPDX-License-Identifier: Apache-2.0
// The arguments of a call: checks and descriptions. Its buffers, as long as it is in flight.
#pragma once

#include "comm/communicator_state.hpp"

#include <string>
#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

inline constexpr const char* empty_text =
    "this communicator has no members here (it is empty); test it with `if (comm)` first";

// Says why the call is invalid; empty if it is valid. Checks this rank's arguments only.
std::string bad_argument(const comm::communicator_state& c, const detail::call& what);

// Whether a message is certainly valid, by a few comparisons; otherwise ask bad_argument.
inline bool plainly_good(const comm::communicator_state& c, const detail::call& what) noexcept {
  return what.kind <= detail::operation_kind::receive && !what.part &&
         static_cast<unsigned>(what.peer) < static_cast<unsigned>(c.size()) &&
         what.tag >= (what.kind == detail::operation_kind::receive ? any_tag : 0) &&
         what.in.count >> 31 == 0 && (what.in.data != nullptr || what.in.count == 0) &&
         (what.out.data != nullptr || what.out.count == 0);
}

// The same for a barrier, and a collective of one vector for another, as all_reduce is.
inline bool plainly_good_collective(const detail::call& what) noexcept {
  const detail::operation_row& row = detail::row_of(what.kind);
  if (what.kind == detail::operation_kind::barrier) return !what.part;
  return row.in == detail::shape::vector && row.out == detail::shape::vector && !row.rooted && !what.part &&
         what.list.at == nullptr && what.in.count == what.out.count && what.in.count >> 31 == 0 &&
         what.in.data != nullptr && what.out.data != nullptr &&
         (what.in.data == what.out.data || !overlap(what.in, what.out));
}

// "send of 8 bytes to rank 1 (host a, pid 7), tag 0 on world, rank 0".
std::string title(const comm::communicator_state& c, const detail::call& what);

// ---- buffers in flight (buffer_check.cpp) ----
//
// Finds two operations in flight on overlapping buffers, one of which writes. Programs that communicate while
// they compute make this error, and results do not show it at once. It is found when the second operation
// starts.
//
// TUTTI_CHECK_BUFFERS=error rejects the second, =warn reports it on stderr, =off disables the check. By
// default, libraries built without NDEBUG warn and others do not check.
// Cost: for every operation that starts, a comparison with all buffers in flight on this loop.
enum class buffer_checks { off, warn, error };
buffer_checks checks_of_buffers();
// Records that the operation is in flight. Returns why it must not start; empty if it may.
std::string record_buffers(const detail::operation_state& state);
void forget_buffers(const detail::operation_state& state) noexcept;

}  // namespace tutti::ops
