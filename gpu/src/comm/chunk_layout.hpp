// SPDX-License-Identifier: Apache-2.0
// How a chunk of a collective lies in the memory that it passes through: as the collective wants it, its
// blocks of `count` elements one behind the other, in the order of ranks; behind them, for scatter alone, one
// more for the result.
#pragma once

#include "device/work_state.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::gpu::detail {

using tutti::detail::shape;

class chunk_layout {
 public:
  // Of what `rank` does in `c`, of which one rank's part has `block` elements.
  chunk_layout(const call& c, int rank, int size, std::size_t block) noexcept
      : call_(c),
        row_(row_of(c.kind)),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        block_(block) {}

  std::size_t blocks() const noexcept;
  // How many elements of each block fit into so many bytes.
  std::size_t most_in(std::size_t bytes) const noexcept {
    return bytes / (blocks() * call_.in.element_bytes);
  }
  // How many chunks of so many elements there are; nothing is one empty chunk.
  std::size_t chunks_of(std::size_t elements) const noexcept {
    return std::max<std::size_t>(1, (block_ + elements - 1) / elements);
  }
  // Elements [offset, offset + count) of each block that this rank gives, from its memory; and of what it
  // gets, back.
  void copy_in(driver& d, std::size_t offset, std::size_t count, void* memory, void* stream) const;
  void copy_out(driver& d, std::size_t offset, std::size_t count, void* memory, void* stream) const;
  // What this rank gives and gets, of a chunk that lies in `memory`. Chunks without elements have neither.
  view in(void* memory, std::size_t count) const noexcept;
  view out(void* memory, std::size_t count) const noexcept;

 private:
  view part(void* memory, std::size_t first_block, std::size_t count, std::size_t blocks) const noexcept;
  bool is_root() const noexcept { return call_.peer == static_cast<int>(rank_); }

  // Where the one block lies that this rank gets.
  std::size_t place_of_block() const noexcept {
    return row_.out != shape::block ? 0 : row_.rooted ? size_ : rank_;
  }

  const call& call_;
  const tutti::detail::operation_row& row_;
  std::size_t rank_, size_, block_;
};

}  // namespace tutti::gpu::detail
