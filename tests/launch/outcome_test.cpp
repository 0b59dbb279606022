// SPDX-License-Identifier: Apache-2.0
#include "launch/outcome.hpp"

#include "base/text.hpp"
#include "launch/node_messages.hpp"

#include <doctest/doctest.h>

#include <cerrno>

using namespace tutti::launch;
using namespace std::chrono_literals;

namespace {

outcome exited(int rank, int code, std::chrono::milliseconds after) {
  outcome end;
  end.rank = rank;
  end.pid = 100 + rank;
  end.exit_code = code;
  end.after = after;
  return end;
}

outcome signalled(int rank, int signal, std::chrono::milliseconds after) {
  outcome end = exited(rank, 0, after);
  end.signal = signal;
  return end;
}

int cause_of(const std::vector<outcome>& ends) {
  const outcome* cause = first_cause(ends);
  return cause == nullptr ? -1 : cause->rank;
}

}  // namespace

TEST_SUITE("launch/outcome") {
  TEST_CASE("the first failed rank is the cause") {
    CHECK(cause_of({}) == -1);
    CHECK(cause_of({exited(0, 0, 1ms), exited(1, 0, 2ms)}) == -1);
    CHECK(cause_of({exited(3, 0, 1ms), exited(2, 7, 2ms), exited(0, 1, 2ms)}) == 2);
  }

  TEST_CASE("a death by a signal explains exits noticed shortly before") {
    CHECK(cause_of({exited(0, 1, 10ms), signalled(1, SIGSEGV, 40ms)}) == 1);
    CHECK(cause_of({exited(0, 1, 10ms), signalled(1, SIGKILL, 10ms)}) == 1);
    CHECK(cause_of({exited(0, 1, 10ms), signalled(1, SIGSEGV, 600ms)}) == 0);
    CHECK(cause_of({signalled(0, SIGBUS, 10ms), signalled(1, SIGSEGV, 11ms)}) == 0);
  }

  TEST_CASE("an abort of a program after the loss of a peer explains nothing") {
    CHECK(cause_of({exited(0, 1, 10ms), signalled(1, SIGABRT, 11ms)}) == 0);
    CHECK(cause_of({exited(0, 1, 10ms), signalled(1, SIGPIPE, 11ms)}) == 0);
    CHECK(cause_of({signalled(1, SIGABRT, 10ms), exited(0, 1, 11ms)}) == 1);
  }

  TEST_CASE("a death cannot be the consequence of one that follows") {
    CHECK(cause_of({signalled(1, SIGABRT, 10ms), signalled(0, SIGKILL, 11ms)}) == 1);
    CHECK(cause_of({signalled(1, SIGPIPE, 10ms), signalled(0, SIGSEGV, 11ms)}) == 1);
    outcome heard = signalled(1, SIGABRT, 10ms);
    heard.thrown = outcome::exception::of_peer;
    CHECK(cause_of({heard, signalled(0, SIGKILL, 11ms)}) == 0);
  }

  TEST_CASE("a rank has failed when its main throws, not when its process ends") {
    outcome thrower = exited(1, 1, 900ms);
    thrower.thrown = outcome::exception::own;
    thrower.thrown_after = 10700us;
    CHECK(cause_of({exited(0, 3, 10ms), exited(2, 1, 12ms), thrower}) == 1);
    CHECK(cause_of({exited(0, 3, 9ms), thrower}) == 0);
    outcome sooner = exited(2, 1, 950ms);
    sooner.thrown = outcome::exception::own;
    sooner.thrown_after = 10600us;
    CHECK(cause_of({exited(0, 3, 10ms), thrower, sooner}) == 2);
    // What it threw explains it; a peer that is killed shortly after does not.
    CHECK(cause_of({thrower, signalled(0, SIGKILL, 901ms)}) == 1);

    outcome heard = exited(0, 1, 20ms);
    heard.thrown = outcome::exception::of_peer;
    heard.thrown_after = 1ms;
    CHECK(cause_of({heard, thrower}) == 1);
    CHECK(cause_of({heard, signalled(2, SIGSEGV, 30ms)}) == 2);
  }

  TEST_CASE("a rank that threw and does not end is still the cause") {
    outcome stuck = signalled(1, SIGKILL, 5000ms);
    stuck.asked_with = SIGTERM;
    stuck.killed = true;
    stuck.thrown = outcome::exception::own;
    stuck.thrown_after = 5ms;
    CHECK(cause_of({exited(0, 3, 10ms), stuck}) == 1);
    CHECK(describe(stuck) == "threw an exception, did not end, and was killed by SIGKILL (signal 9)");
  }

  TEST_CASE("signals sent by the launcher explain nothing") {
    outcome stopped = signalled(1, SIGTERM, 12ms);
    stopped.asked_with = SIGTERM;
    outcome killed = signalled(2, SIGKILL, 13ms);
    killed.asked_with = SIGTERM;
    killed.killed = true;
    CHECK(cause_of({exited(0, 1, 10ms), stopped, killed}) == 0);
    CHECK(cause_of({stopped, killed}) == -1);
    outcome out_of_memory = signalled(3, SIGKILL, 14ms);
    out_of_memory.asked_with = SIGTERM;  // and not yet killed by the launcher
    CHECK(cause_of({exited(0, 1, 10ms), stopped, out_of_memory}) == 3);
  }

  TEST_CASE("lists of ranks are short") {
    CHECK(tutti::base::rank_list({}).empty());
    CHECK(tutti::base::rank_list({4}) == "4");
    CHECK(tutti::base::rank_list({5, 0, 2, 1}) == "0-2, 5");
  }

  TEST_CASE("the report names rank, process, host, reason, last lines and the others") {
    options o;
    o.program = {"prog"};
    o.grace = 5000ms;
    ranks_ended there;
    there.last_lines = {"oh", "no"};
    there.last_operations = "  > recv from rank 1: never ended\n  > barrier #4 on world\n";
    outcome stopped = signalled(1, SIGTERM, 12ms);
    stopped.asked_with = SIGTERM;
    outcome killed = signalled(2, SIGKILL, 5013ms);
    killed.asked_with = SIGTERM;
    killed.killed = true;
    const std::vector<outcome> ends = {exited(3, 0, 1ms), signalled(0, SIGKILL, 10ms), stopped, killed};
    const std::string report = failure_report(ends[1], ends, there, o, "box", 4);
    CHECK(report ==
          "tutti-run: rank 0 failed first: it was killed by SIGKILL (signal 9) (pid 100 on box, 0.010 s "
          "after the start)\n"
          "tutti-run:   often the out-of-memory killer: see dmesg\n"
          "tutti-run: the last lines on the standard error of rank 0:\n"
          "  | oh\n"
          "  | no\n"
          "tutti-run: the last operations of rank 0:\n"
          "  > recv from rank 1: never ended\n"
          "  > barrier #4 on world\n"
          "tutti-run: rank 3: ended without error\n"
          "tutti-run: rank 1: stopped by tutti-run\n"
          "tutti-run: rank 2: killed by tutti-run: still there 5 s after SIGTERM\n");
  }

  TEST_CASE("exit codes follow the shell's convention") {
    CHECK(exited(0, 3, 0ms).shell_code() == 3);
    CHECK(signalled(0, SIGKILL, 0ms).shell_code() == 137);
    CHECK(start_error_exit_code(ENOENT) == 127);
    CHECK(start_error_exit_code(EACCES) == 126);
  }
}
