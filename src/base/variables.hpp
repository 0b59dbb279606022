// SPDX-License-Identifier: Apache-2.0
// The environment variables that tutti reads or sets, in one table: `tutti-run --variables` prints it, docs/configuration.md
// shows it, and tests/repo/docs_test.py compares both with the code.
#pragma once

#include <span>
#include <string_view>

namespace tutti::base {

struct variable {
  std::string_view group;   // its title
  std::string_view name;    // or several of one meaning: "A, B"
  std::string_view values;  // as written, the default first where there is one; empty: set by starters
  std::string_view text;    // one line
};

// By group.
std::span<const variable> variables() noexcept;

}  // namespace tutti::base
