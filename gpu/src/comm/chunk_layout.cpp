// SPDX-License-Identifier: Apache-2.0
#include "comm/chunk_layout.hpp"

namespace tutti::gpu::detail {
namespace {

bool many_blocks_in(operation_kind kind) noexcept {
  return kind == operation_kind::scatter || kind == operation_kind::reduce_scatter ||
         kind == operation_kind::all_to_all;
}
bool many_blocks_out(operation_kind kind) noexcept {
  return kind == operation_kind::gather || kind == operation_kind::all_gather ||
         kind == operation_kind::all_to_all;
}
std::byte* offset_by(void* base, std::size_t elements, std::size_t element_bytes) noexcept {
  return static_cast<std::byte*>(base) + elements * element_bytes;
}

}  // namespace

std::size_t chunk_layout::blocks() const noexcept {
  if (call_.kind == operation_kind::scatter) return size_ + 1;
  return many_blocks_in(call_.kind) || many_blocks_out(call_.kind) ? size_ : 1;
}

void chunk_layout::copy_in(driver& d, std::size_t offset, std::size_t count, void* memory,
                           void* stream) const {
  const std::size_t e = call_.in.element_bytes, bytes = count * e;
  const bool gives =
      !(call_.kind == operation_kind::broadcast || call_.kind == operation_kind::scatter) || is_root();
  if (!gives) return;
  if (many_blocks_in(call_.kind)) {
    for (std::size_t r = 0; r < size_; ++r)
      d.copy(offset_by(memory, r * count, e), offset_by(call_.in.data, r * block_ + offset, e), bytes,
             stream);
  } else {
    const std::size_t place = many_blocks_out(call_.kind) ? rank_ * count : 0;
    d.copy(offset_by(memory, place, e), offset_by(call_.in.data, offset, e), bytes, stream);
  }
}

void chunk_layout::copy_out(driver& d, std::size_t offset, std::size_t count, void* memory,
                            void* stream) const {
  const std::size_t e = call_.in.element_bytes, bytes = count * e;
  const bool gets =
      !(call_.kind == operation_kind::reduce || call_.kind == operation_kind::gather) || is_root();
  // The root of a broadcast has what it sends already.
  if (!gets || (call_.kind == operation_kind::broadcast && is_root())) return;
  if (many_blocks_out(call_.kind)) {
    for (std::size_t r = 0; r < size_; ++r)
      d.copy(offset_by(call_.out.data, r * block_ + offset, e), offset_by(memory, r * count, e), bytes,
             stream);
  } else {
    std::size_t place = 0;
    if (call_.kind == operation_kind::reduce_scatter) place = rank_ * count;
    if (call_.kind == operation_kind::scatter) place = size_ * count;
    d.copy(offset_by(call_.out.data, offset, e), offset_by(memory, place, e), bytes, stream);
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
  switch (call_.kind) {
    case operation_kind::all_gather:
    case operation_kind::gather:
      return part(memory, rank_, count, 1);
    case operation_kind::reduce_scatter:
    case operation_kind::all_to_all:
      return part(memory, 0, count, size_);
    case operation_kind::scatter:
      return part(memory, 0, count, is_root() ? size_ : 0);
    default:
      return part(memory, 0, count, 1);
  }
}

view chunk_layout::out(void* memory, std::size_t count) const noexcept {
  switch (call_.kind) {
    case operation_kind::all_gather:
    case operation_kind::all_to_all:
      return part(memory, 0, count, size_);
    case operation_kind::gather:
      return part(memory, 0, count, is_root() ? size_ : 0);
    case operation_kind::reduce_scatter:
      return part(memory, rank_, count, 1);
    case operation_kind::scatter:
      return part(memory, size_, count, 1);
    default:
      return part(memory, 0, count, 1);
  }
}

}  // namespace tutti::gpu::detail
