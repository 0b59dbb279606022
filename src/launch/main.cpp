// SPDX-License-Identifier: Apache-2.0
// tutti-run: starts N ranks of a program and looks after them.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "launch/job.hpp"
#include "launch/options.hpp"
#include "launch/outcome.hpp"
#include "launch/process.hpp"
#include "launch/signals.hpp"

namespace {

using namespace tutti::launch;

constexpr int usage_exit_code = 2;

// A stream that was closed would give its number to the next descriptor opened, and output meant for it would
// go there.
void fill_closed_streams() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::dup(fd))
    if (fd > STDERR_FILENO) {
      ::close(fd);
      break;
    }
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_streams();
  try {
    const options o = parse_options(argc, argv);
    const program_search program = find_program(o.program.front());
    // Of several nodes, node 0 is to hear of it: it then fails to start like any rank.
    if (program.error != 0 && o.nodes == 1) {
      std::fputs(start_error(o.program.front(), program.error).c_str(), stderr);
      return start_error_exit_code(program.error);
    }
    ignore_signals_of_writing();
    return job(o, program.path).run();
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
