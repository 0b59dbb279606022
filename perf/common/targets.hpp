// SPDX-License-Identifier: Apache-2.0
// tutti's targets: ratios of its time to that of a rival in the same run. bench reports whether each was met.
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
  std::optional<command> what = {};  // empty: every command with times of one operation
  std::string_view transport = {};   // empty: any
  int ranks = 0;                     // 0: any
  std::size_t bytes = 0;             // this size; 0: every size from `from_bytes` to `to_bytes`
  std::size_t from_bytes = 0;
  std::size_t to_bytes = SIZE_MAX;
  memory where = memory::ordinary;
  std::string_view against = {};  // a peer; "gloo": its variants; "mpi": all MPIs; empty: the best rival
  double ratio = 1;
  rule is = rule::at_most;
  bool cpu_too = false;           // CPU time must not exceed the rival's either
  std::string_view mode = {};     // overlap: the mode of computing
  std::string_view measure = {};  // overlap: "overlap", "both/bound", "CPU both/sum"
};

std::span<const target> all_targets() noexcept;

// Whether `aim` applies to this case.
bool concerns(const target& aim, command what, std::string_view transport, int ranks, std::size_t bytes,
              memory where) noexcept;
// Whether `aim` compares with a rival of this name.
bool is_against(const target& aim, std::string_view peer) noexcept;

// "<= 0.75 of the best rival".
std::string text_of(const target& aim);

}  // namespace perf
