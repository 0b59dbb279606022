// SPDX-License-Identifier: Apache-2.0
#include "comm/chunk_layout.hpp"

namespace tutti::gpu::detail {
namespace {

std::byte* offset_by(void* base, std::size_t elements, std::size_t element_bytes) noexcept {
  return static_cast<std::byte*>(base) + elements * element_bytes;
}

}  // namespace

std::size_t chunk_layout::blocks() const noexcept {
  if (call_.kind == operation_kind::scatter) return size_ + 1;
  return row_.in == shape::blocks || row_.out == shape::blocks ? size_ : 1;
}

void chunk_layout::copy_in(driver& d, std::size_t offset, std::size_t count, void* memory,
                           void* stream) const {
  const std::size_t e = call_.in.element_bytes, bytes = count * e;
  if (!includes(row_.reads, is_root())) return;
  if (row_.in == shape::blocks) {
    for (std::size_t r = 0; r < size_; ++r)
      d.copy(offset_by(memory, r * count, e), offset_by(call_.in.data, r * block_ + offset, e), bytes,
             stream);
  } else {
    const std::size_t place = row_.out == shape::blocks ? rank_ * count : 0;
    d.copy(offset_by(memory, place, e), offset_by(call_.in.data, offset, e), bytes, stream);
  }
}

void chunk_layout::copy_out(driver& d, std::size_t offset, std::size_t count, void* memory,
                            void* stream) const {
  const std::size_t e = call_.in.element_bytes, bytes = count * e;
  if (!includes(row_.writes, is_root())) return;
  if (row_.out == shape::blocks) {
    for (std::size_t r = 0; r < size_; ++r)
      d.copy(offset_by(call_.out.data, r * block_ + offset, e), offset_by(memory, r * count, e), bytes,
             stream);
  } else {
    d.copy(offset_by(call_.out.data, offset, e), offset_by(memory, place_of_block() * count, e), bytes,
           stream);
  }
}

view chunk_layout::part(void* memory, std::size_t first_block, std::size_t count,
                        std::size_t blocks) const noexcept {
  view v;
  v.data = offset_by(memory, first_block * count, call_.in.element_bytes);
  v.count = blocks * count;
  v.element_bytes = call_.in.element_bytes;
  v.type = call_.in.type;
  return v;
}

view chunk_layout::in(void* memory, std::size_t count) const noexcept {
  if (row_.in == shape::blocks) return part(memory, 0, count, row_.rooted && !is_root() ? 0 : size_);
  return part(memory, row_.in == shape::block ? rank_ : 0, count, 1);
}

view chunk_layout::out(void* memory, std::size_t count) const noexcept {
  if (row_.out == shape::blocks) return part(memory, 0, count, row_.rooted && !is_root() ? 0 : size_);
  return part(memory, place_of_block(), count, 1);
}

}  // namespace tutti::gpu::detail
