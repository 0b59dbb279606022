// SPDX-License-Identifier: Apache-2.0
// What tutti aims at, as ratios of its time to another's in the same run; bench says of each whether it was
// reached.
#pragma once

#include "common/options.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace perf {

struct target {
  enum class rule { at_most, at_least };
  std::optional<command> what = {};  // empty: every command whose rows are times of one operation
  std::string_view transport = {};   // empty: any
  int ranks = 0;                     // 0: any
  std::size_t bytes = 0;             // this size; 0: every size from `from_bytes` to `to_bytes`
  std::size_t from_bytes = 0;
  std::size_t to_bytes = SIZE_MAX;
  memory where = memory::ordinary;
  std::string_view against = {};  // a peer, "gloo" for all whose names begin so, "mpi"; empty: the best rival
  double ratio = 1;
  rule is = rule::at_most;
  bool cpu_too = false;           // and no more CPU time than the rival
  std::string_view mode = {};     // overlap: the way of computing
  std::string_view measure = {};  // overlap: "overlap", "both/bound", "CPU both/sum"
};

std::span<const target> all_targets() noexcept;

// Whether `aim` speaks of this.
bool concerns(const target& aim, command what, std::string_view transport, int ranks, std::size_t bytes,
              memory where) noexcept;
// Whether a rival of this name is one that `aim` is measured against.
bool is_against(const target& aim, std::string_view peer) noexcept;

// "<= 0.75 of the best rival".
std::string text_of(const target& aim);

}  // namespace perf
