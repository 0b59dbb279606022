// SPDX-License-Identifier: Apache-2.0
// The names of the algorithms of collectives, for programs that choose one.
//
// A program's own algorithm is a coroutine on send() and recv(), on a communicator that duplicate() made for it,
// so its messages meet no others: examples/tutorial/ring_all_reduce.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace tutti {

// The algorithms by name. The table of src/coll/algorithms.hpp says which ones each collective has, with
// steps and traffic. `automatic` chooses by size, number of ranks and hosts.
enum class algorithm : std::uint8_t {
  automatic,
  binomial,
  bruck,
  direct,
  dissemination,
  linear,
  one_shot,
  pairwise,
  rabenseifner,
  recursive_doubling,
  ring,
  scatter_all_gather,
  // Between ranks that read each other's memory: on one host, at most 1,024; all_to_all at most 16.
  shared_memory,
  hierarchical,
  hierarchical_split
};

// The name of an algorithm, such as "ring".
const char* name_of(algorithm a) noexcept;
// All but `automatic`, for programs that try each.
std::span<const algorithm> all_algorithms() noexcept;

}  // namespace tutti
