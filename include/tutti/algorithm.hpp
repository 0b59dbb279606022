// SPDX-License-Identifier: Apache-2.0
// The names of the algorithms of collectives, for those who want to choose.
//
// An algorithm of your own needs no registration: it is a coroutine on send() and recv() of a communicator that
// duplicate() has made for it, so that its messages meet no others, as in examples/ring_all_reduce.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace tutti {

// Which of them each collective has, with steps and traffic, is in the table of src/coll/algorithms.hpp;
// `automatic` chooses by size, number of ranks and hosts.
enum class algorithm : std::uint8_t {
  automatic,
  binomial,
  bruck,
  direct,
  dissemination,
  linear,
  pairwise,
  rabenseifner,
  recursive_doubling,
  ring,
  scatter_all_gather,
  shared_memory,  // between ranks that read each other's memory: of one host, at most 16
  hierarchical,
  hierarchical_split,
  two_level [[deprecated("write hierarchical")]] = hierarchical,
  two_level_slices [[deprecated("write hierarchical_split")]] = hierarchical_split
};

const char* name_of(algorithm a) noexcept;
// All but `automatic`, for programs that try each.
std::span<const algorithm> all_algorithms() noexcept;

}  // namespace tutti
