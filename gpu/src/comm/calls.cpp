// SPDX-License-Identifier: Apache-2.0
#include "comm/calls.hpp"

#include <cstdint>
#include <cstring>

namespace tutti::gpu::detail {

namespace {

// Reads `state` as that of the types T which is `type`.
template <class... T>
double number_in(const std::byte* state, element_type type) noexcept {
  double number = 0;
  const auto read_as = [&]<class U>(U value) {
    if (tutti::detail::element_type_of<U>() != type) return;
    std::memcpy(&value, state, sizeof value);
    number = static_cast<double>(value);
  };
  (read_as(T{}), ...);
  return number;
}

}  // namespace

double factor_in(const tutti::detail::reduction& op, element_type type) noexcept {
  if (tutti::detail::is_half(type)) type = element_type::float32;  // as factor_of() has it
  return number_in<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, float,
                   double>(op.state.data(), type);
}

std::size_t block_of(const call& c, int size) noexcept {
  const tutti::detail::operation_row& row = row_of(c.kind);
  if (row.out == shape::block) return c.out.count;
  const bool blocks = row.in == shape::blocks;
  return blocks ? c.in.count / static_cast<std::size_t>(size) : c.in.count;
}

bool has_chunks(const call& c) noexcept {
  const tutti::detail::operation_row& row = row_of(c.kind);
  return row.of == tutti::detail::family::collective && !row.uneven() && row.out != shape::nothing &&
         c.kind != operation_kind::scan && c.kind != operation_kind::exclusive_scan &&
         (c.whole == nullptr || c.whole->list.at == nullptr);
}

// ---- chunk_layout ----

std::size_t chunk_layout::blocks() const noexcept {
  if (call_.kind == operation_kind::scatter) return size_ + 1;
  return row_.in == shape::blocks || row_.out == shape::blocks ? size_ : 1;
}

// Index of the block that this rank reads or receives, on a side with one.
std::size_t chunk_layout::place_on(side s) const noexcept {
  if (s == side::in) return row_.in == shape::block ? rank_ : 0;
  return row_.out != shape::block ? 0 : row_.rooted ? size_ : rank_;
}

void chunk_layout::copy(driver& d, side s, std::size_t offset, std::size_t count, void* memory,
                        void* stream) const {
  if (!includes(s == side::in ? row_.reads : row_.writes, is_root())) return;
  const std::size_t pieces = has_blocks(s) ? size_ : 1, bytes = count * call_.in.element_bytes;
  for (std::size_t i = 0; i < pieces; ++i) {
    void* const chunk = at(memory, (has_blocks(s) ? i : place_on(s)) * count);
    void* const buffer = at(s == side::in ? call_.in.data : call_.out.data, i * block_ + offset);
    s == side::in ? d.copy(chunk, buffer, bytes, stream) : d.copy(buffer, chunk, bytes, stream);
  }
}

view chunk_layout::part(side s, void* memory, std::size_t count) const noexcept {
  view v;
  v.data = at(memory, has_blocks(s) ? 0 : place_on(s) * count);
  v.count = !has_blocks(s) ? count : row_.rooted && !is_root() ? 0 : size_ * count;
  v.element_bytes = call_.in.element_bytes;
  v.type = call_.in.type;
  return v;
}

}  // namespace tutti::gpu::detail
