// SPDX-License-Identifier: Apache-2.0
// What the backends need to know of a call, and how its data lie in chunks.
#pragma once

#include "device/work_state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tutti/error.hpp>
#include <tutti/extend/call.hpp>

namespace tutti::gpu::impl {

using tutti::extend::shape;
using tutti::extend::side;

// Whether the call is a collective of equal blocks or whole vectors, which can be split into chunks.
inline bool has_chunks(const device_arguments& c) noexcept {
  const tutti::extend::operation_row& row = row_of(c.kind);
  return row.of == tutti::extend::family::collective && !row.uneven() && row.out != shape::nothing &&
         c.kind != operation_kind::scan && c.kind != operation_kind::exclusive_scan &&
         (c.whole == nullptr || c.whole->list.at == nullptr);
}
// Elements of one rank's block, such as `in` of all_gather and `out` of reduce_scatter.
inline std::size_t block_of(const device_arguments& c, int size) noexcept {
  const tutti::extend::operation_row& row = row_of(c.kind);
  if (row.out == shape::block) return c.out.count;
  const bool blocks = row.in == shape::blocks;
  return blocks ? c.in.count / static_cast<std::size_t>(size) : c.in.count;
}

// The factor of a premul_sum. Requires an element type whose factors fit into a double.
inline double factor_in(const tutti::extend::reduction& op, element_type type) noexcept {
  if (tutti::extend::is_half(type)) type = element_type::float32;  // as factor_of() has it
  double factor = 0;
  const auto read_as = [&]<class T>(T value) {
    if (tutti::extend::element_type_of<T>() != type) return;
    std::memcpy(&value, op.state.data(), sizeof value);
    factor = static_cast<double>(value);
  };
  const auto read_as_one_of = [&](auto... values) { (read_as(values), ...); };
  read_as_one_of(std::int8_t{}, std::uint8_t{}, std::int16_t{}, std::uint16_t{}, std::int32_t{},
                 std::uint32_t{}, float{}, double{});
  return factor;
}

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
  // The layout on `rank` of `size` for call `c`.
  chunk_layout(const device_arguments& c, int rank, int size) noexcept
      : call_(c),
        row_(row_of(c.kind)),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        block_(block_of(c, size)) {}

  std::size_t block() const noexcept { return block_; }
  std::size_t blocks() const noexcept {
    if (call_.kind == operation_kind::scatter) return size_ + 1;
    return row_.in == shape::blocks || row_.out == shape::blocks ? size_ : 1;
  }
  // Elements of each block that fit into `bytes`.
  std::size_t most_in(std::size_t bytes) const noexcept {
    return bytes / (blocks() * call_.in.element_bytes);
  }
  // Number of chunks with `elements` elements of each block; an empty call has one empty chunk.
  std::size_t chunks_of(std::size_t elements) const noexcept {
    return std::max<std::size_t>(1, (block_ + elements - 1) / elements);
  }
  // Copies elements [offset, offset + count) of each block: of side::in from this rank's input to the chunk in
  // `memory`, of side::out from the chunk to its output. Ranks without input or output copy nothing.
  void copy(driver& d, side s, std::size_t offset, std::size_t count, void* memory, void* stream) const {
    if (!includes(s == side::in ? row_.reads : row_.writes, is_root())) return;
    const std::size_t pieces = has_blocks(s) ? size_ : 1, bytes = count * call_.in.element_bytes;
    for (std::size_t i = 0; i < pieces; ++i) {
      void* const chunk = at(memory, (has_blocks(s) ? i : place_on(s)) * count);
      void* const buffer = at(s == side::in ? call_.in.data : call_.out.data, i * block_ + offset);
      s == side::in ? d.copy(chunk, buffer, bytes, stream) : d.copy(buffer, chunk, bytes, stream);
    }
  }
  // Input or output of this rank in the chunk in `memory`; empty if `count` is 0.
  view part(side s, void* memory, std::size_t count) const noexcept {
    view v;
    v.data = at(memory, has_blocks(s) ? 0 : place_on(s) * count);
    v.count = !has_blocks(s) ? count : row_.rooted && !is_root() ? 0 : size_ * count;
    v.element_bytes = call_.in.element_bytes;
    v.type = call_.in.type;
    return v;
  }

 private:
  // Index of the block that this rank reads or receives, on a side with one.
  std::size_t place_on(side s) const noexcept {
    if (s == side::in) return row_.in == shape::block ? rank_ : 0;
    return row_.out != shape::block ? 0 : row_.rooted ? size_ : rank_;
  }
  bool has_blocks(side s) const noexcept { return (s == side::in ? row_.in : row_.out) == shape::blocks; }
  bool is_root() const noexcept { return call_.peer == static_cast<int>(rank_); }
  void* at(void* base, std::size_t elements) const noexcept {
    return static_cast<std::byte*>(base) + elements * call_.in.element_bytes;
  }

  const device_arguments& call_;
  const tutti::extend::operation_row& row_;
  std::size_t rank_, size_, block_;
};

}  // namespace tutti::gpu::impl
