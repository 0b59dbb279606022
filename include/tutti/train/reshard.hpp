// SPDX-License-Identifier: Apache-2.0
// reshard: moves a tensor between two layouts on the ranks of one communicator, such as from 4 trainers to 2 servers.
//
//   const tutti::layout trainers{.shape = {{.size = rows, .parts = 4}, {.size = columns}}};
//   const tutti::layout servers{.shape = {{.size = rows}, {.size = columns, .parts = 2}}, .first_rank = 4};
//   const tutti::reshard_plan plan(trainers, servers, all.rank());   // once
//   co_await plan.move(all, mine, wanted);                           // every ten steps
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

// How one dimension of a tensor is divided.
struct dimension {
  std::size_t size = 1;  // elements of the whole
  int parts = 1;
  // 0: each part has one block, of size / parts elements rounded up; the last ones are shorter, or empty. Otherwise
  // blocks of so many elements go to the parts in turn (block-cyclic).
  std::size_t block = 0;
};

// How a tensor of up to three dimensions, the last of which is contiguous, lies on ranks: each has one part of each
// dimension, the parts of the last dimension are on neighbouring ranks, and a rank's elements are in memory without
// gaps. A layout has a rank for each combination of parts, from first_rank on.
struct layout {
  std::array<dimension, 3> shape = {};
  int first_rank = 0;

  int ranks() const noexcept { return shape[0].parts * shape[1].parts * shape[2].parts; }
  // Those of a rank of the communicator; 0: the layout does not use it.
  std::size_t elements(int rank) const noexcept;
};

// Which slices go from which rank to which. Every rank that either layout uses makes one of the same layouts. An
// element goes to its rank directly, in one message for each pair of ranks; what stays on a rank is copied.
class reshard_plan {
 public:
  // Some elements of a dimension that lie side by side in both layouts, by where they are in each.
  struct run {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t count = 0;
  };
  // The elements that one rank has and another wants: those of all combinations of runs.
  struct slice {
    int rank = 0;  // the other one
    std::array<std::vector<run>, 3> runs = {};
    std::size_t elements() const noexcept;
  };

  // `rank` is this rank's. Throws errc::invalid_argument for layouts of tensors of different sizes, and dimensions
  // without parts.
  reshard_plan(const layout& from, const layout& to, int rank);

  // What this rank sends and receives, by distance from it.
  const std::vector<slice>& outgoing() const noexcept { return outgoing_; }
  const std::vector<slice>& incoming() const noexcept { return incoming_; }

  // Moves the tensor: `from` has this rank's elements of the first layout, `to` gets those of the second; they do not
  // overlap. Called by all ranks of both layouts. Uses messages of `c` with this tag: two moves at a time need two
  // tags. The buffers belong to it until it completes, which is when `from` may be changed and `to` is complete.
  // Errors: errc::invalid_argument for buffers of other sizes; those of send and recv. Cancellation: as of those; the
  // contents of `to` are then undefined.
  // Cost: messages of at most eight ranks at a time are copied once on each side, in memory of the task, unless a
  // slice is one piece of memory there.
  template <class From, class To>
  task<> move(communicator c, const From& from, To&& to, int tag = 0) const {
    const std::span in(from);
    const std::span out(to);
    using element = typename decltype(out)::element_type;
    static_assert(std::is_same_v<std::remove_const_t<typename decltype(in)::element_type>, element> &&
                      std::is_trivially_copyable_v<element>,
                  "reshard_plan::move takes two contiguous ranges of the same trivially copyable element");
    return move_bytes(std::move(c), std::as_bytes(in), std::as_writable_bytes(out), sizeof(element), tag);
  }

 private:
  task<> move_bytes(communicator c, std::span<const std::byte> from, std::span<std::byte> to,
                    std::size_t element_bytes, int tag) const;

  std::size_t elements_before_ = 0;
  std::size_t elements_after_ = 0;
  std::array<std::size_t, 3> extent_before_{};  // of this rank's elements
  std::array<std::size_t, 3> extent_after_{};
  std::vector<slice> outgoing_;
  std::vector<slice> incoming_;
  // Of all transfers, by distance: whether it is the next of incoming_, or of outgoing_.
  std::vector<bool> receives_;
  slice staying_;
};

}  // namespace tutti
