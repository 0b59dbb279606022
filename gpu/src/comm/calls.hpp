// SPDX-License-Identifier: Apache-2.0
// What the backends need to know of a call, and how its data lie in chunks.
#pragma once

#include "device/work_state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tutti/detail/operation_state.hpp>
#include <tutti/error.hpp>

namespace tutti::gpu::detail {

using tutti::detail::shape;

inline bool is_message(operation_kind kind) noexcept {
  return row_of(kind).of == tutti::detail::family::message;
}
// Whether the call is a collective of equal blocks or whole vectors, which can be split into chunks.
bool has_chunks(const call& c) noexcept;
// Elements of one rank's block, such as `in` of all_gather and `out` of reduce_scatter.
std::size_t block_of(const call& c, int size) noexcept;
// The factor of a premul_sum. Requires an element type whose factors fit into a double.
double factor_in(const tutti::detail::reduction& op, element_type type) noexcept;

// Why something has failed on one rank, as other ranks hear of it.
template <std::size_t Bytes>
struct failure_text {
  std::int32_t why = 0;  // errc; 0: it has not failed
  char text[Bytes] = {};
  void set(const error& e) noexcept {
    why = e.code().value();
    std::strncpy(text, e.what(), sizeof text - 1);
  }
};
using reason = failure_text<252>;

// Layout of a chunk of a collective in the memory that it passes through: contiguous blocks of `count` elements in
// the order of ranks, as the collective needs them. scatter alone has one more block at the end, for the result.
class chunk_layout {
 public:
  // The layout on `rank` of `size` for call `c`, whose blocks have `block` elements.
  chunk_layout(const call& c, int rank, int size, std::size_t block) noexcept
      : call_(c),
        row_(row_of(c.kind)),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        block_(block) {}

  std::size_t blocks() const noexcept;
  // Elements of each block that fit into `bytes`.
  std::size_t most_in(std::size_t bytes) const noexcept {
    return bytes / (blocks() * call_.in.element_bytes);
  }
  // Number of chunks with `elements` elements of each block; an empty call has one empty chunk.
  std::size_t chunks_of(std::size_t elements) const noexcept {
    return std::max<std::size_t>(1, (block_ + elements - 1) / elements);
  }
  // Copy elements [offset, offset + count) of each block: copy_in from this rank's input to the chunk in
  // `memory`, copy_out from the chunk to its output. Ranks without input or output copy nothing.
  void copy_in(driver& d, std::size_t offset, std::size_t count, void* memory, void* stream) const {
    copy(d, side::in, offset, count, memory, stream);
  }
  void copy_out(driver& d, std::size_t offset, std::size_t count, void* memory, void* stream) const {
    copy(d, side::out, offset, count, memory, stream);
  }
  // Input and output of this rank in the chunk in `memory`; empty if `count` is 0.
  view in(void* memory, std::size_t count) const noexcept { return part(side::in, memory, count); }
  view out(void* memory, std::size_t count) const noexcept { return part(side::out, memory, count); }

 private:
  using side = tutti::detail::side;
  void copy(driver& d, side s, std::size_t offset, std::size_t count, void* memory, void* stream) const;
  view part(side s, void* memory, std::size_t count) const noexcept;
  std::size_t place_on(side s) const noexcept;
  bool has_blocks(side s) const noexcept { return (s == side::in ? row_.in : row_.out) == shape::blocks; }
  bool is_root() const noexcept { return call_.peer == static_cast<int>(rank_); }
  void* at(void* base, std::size_t elements) const noexcept {
    return static_cast<std::byte*>(base) + elements * call_.in.element_bytes;
  }

  const call& call_;
  const tutti::detail::operation_row& row_;
  std::size_t rank_, size_, block_;
};

}  // namespace tutti::gpu::detail
