// SPDX-License-Identifier: Apache-2.0
#include "comm/chunk_layout.hpp"

namespace tutti::gpu::detail {

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
