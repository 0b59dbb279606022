// SPDX-License-Identifier: Apache-2.0
// The environment variables that tutti reads or sets, in one table: `tutti-run --variables` prints it, docs/configuration.md
// shows it, and tests/repo/configuration_test.cpp compares both with the code.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::base {

enum class variable_group : std::uint8_t {
  place,     // which rank of how many, and where they meet
  network,   // transports and addresses
  security,  // secret, checksums, TLS
  failure,   // time limits
  speed,     // loop, algorithms
  records,   // logs, traces, checks
  devices,   // read by tutti::gpu
  starters,  // of other starters, read only
  internal   // between tutti-run and its ranks
};
std::string_view title_of(variable_group group) noexcept;

struct variable {
  variable_group group;
  std::string_view name;
  std::string_view
      values;  // as they are written, with the default first where there is one; empty: set by starters
  std::string_view text;  // one line
};

// Grouped, in the order of variable_group.
std::span<const variable> variables() noexcept;

}  // namespace tutti::base
