// SPDX-License-Identifier: Apache-2.0
// The exit codes of command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace perf {

// Reads the command line. Returns the program's exit code if it ends here: 0 after --help, 2 for a wrong
// command line, as in the other programs.
inline std::optional<int> parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace perf
