// SPDX-License-Identifier: Apache-2.0
// The entry of a call in the flight recorder.
#pragma once

#include "comm/communicator_state.hpp"
#include "flight/recorder.hpp"

#include <tutti/detail/operation_state.hpp>

namespace tutti::ops {

// `sequence` of a collective; 0 for a message.
inline flight::operation_facts facts_of(const comm::communicator_state& c, const detail::call& what,
                                        std::uint32_t sequence) noexcept {
  flight::operation_facts facts;
  facts.kind = static_cast<std::uint8_t>(what.kind);
  facts.communicator = c.id();
  facts.sequence = sequence;
  facts.peer = what.peer;
  facts.tag = what.tag;
  facts.bytes = what.kind == detail::operation_kind::send || what.out.data == nullptr ? what.in.bytes()
                                                                                      : what.out.bytes();
  facts.file = what.where.file_name();
  facts.line = what.where.line();
  return facts;
}
inline flight::handle put_on_record(comm::communicator_state& c, const detail::call& what,
                                    std::uint32_t sequence) noexcept {
  return c.recorder().begin(facts_of(c, what, sequence));
}

inline flight::state state_of(errc failure) noexcept {
  return failure == errc::success     ? flight::state::done
         : failure == errc::cancelled ? flight::state::cancelled
                                      : flight::state::failed;
}

}  // namespace tutti::ops
