// SPDX-License-Identifier: Apache-2.0
// tutti-run: starts N ranks of a program and supervises them.
#include <cstdio>
#include <exception>

#include "launch/options.hpp"
#include "launch/outcome.hpp"

using namespace tutti::launch;

int main(int argc, char** argv) {
  constexpr int usage_exit_code = 2;
  try {
    const options o = parse_options(argc, argv);
    if (o.check) return run_check(o);
    if (o.status) return run_status(o);
    const program_search program = find_program(o.program.front());
    // With several nodes, node 0 must hear of it: the program then fails to start like any rank.
    if (program.error != 0 && o.nodes == 1) {
      std::fputs(start_error(o.program.front(), program.error).c_str(), stderr);
      return start_error_exit_code(program.error);
    }
    return run_job(o, program.path);
  } catch (const help_request& help) {
    std::fputs(help.text.c_str(), stdout);
    return 0;
  } catch (const usage_error& e) {
    std::fprintf(stderr, "tutti-run: %s (tutti-run --help lists all options)\n", e.what());
    return usage_exit_code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti-run: %s\n", e.what());
    return 1;
  }
}
