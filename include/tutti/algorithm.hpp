// SPDX-License-Identifier: Apache-2.0
// The names of the algorithms of collectives, for those who want to choose.
#pragma once

#include <cstdint>

namespace tutti {

// Which of them each collective has, with steps and traffic, is in the table of src/coll/choice.cpp;
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

}  // namespace tutti
