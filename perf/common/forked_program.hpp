// SPDX-License-Identifier: Apache-2.0
// main() of programs that fork their ranks: the limits of the machine, and libraries without a launcher.
#pragma once

#include "common/blocking_program.hpp"
#include "common/forked_world.hpp"

#include <cstdio>
#include <exception>
#include <utility>
#include <variant>

namespace perf {

// Calls make_shared(options) before the fork, for data that all ranks share. Then each rank constructs
// World(forked_world, options, shared) and measures with memory of `from`.
template <class World, class MakeShared>
int run_forked_program(int argc, const char* const* argv, const program_names& names, MakeShared make_shared,
                       const memory_source& from = ordinary_memory) try {
  const std::variant<options, int> said = parse_command_line(argc, argv, names);
  if (const int* code = std::get_if<int>(&said)) return *code;
  const options& chosen = std::get<options>(said);
  if (chosen.what == command::startup && chosen.launched_ns == 0) return measure_startup(chosen, names);
  const std::string wrong = wrong_ranks(chosen, chosen.ranks, names);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s: %s\n", names.program.c_str(), wrong.c_str());
    return 2;
  }
  auto shared = make_shared(chosen);
  return run_forked(chosen.ranks, [&](forked_world control) {
    if (chosen.pin) pin_to_core(control.rank());
    World world(control, chosen, shared);
    return measure_all_blocking(world, chosen, names, from);
  });
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s: %s\n", names.program.c_str(), failure.what());
  return 1;
}

}  // namespace perf
