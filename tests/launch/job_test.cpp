// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "launched.hpp"
#include "support/contains.hpp"

using namespace tutti::launch;
using testing::ending;
using testing::launch;
using testing::launched;

namespace {

using tutti::test::contains;

// Ranks that wait in the shell, by `silence`. $0 is a fifo without a writer.
struct waiting_ranks {
  testing::temporary_directory folder;
  std::string silence = folder.fifo("silence");

  std::vector<std::string> command(std::vector<std::string> options, const std::string& script) const {
    const std::string wait = "silence() { " + testing::wait_for_signals + "; }; export -f silence; ";
    options.insert(options.end(), {"bash", "-c", "exec 3<>$0; " + wait + script, silence});
    return options;
  }
};

}  // namespace

TEST_SUITE("launch/job") {
  TEST_CASE("a job in which all ranks succeed") {
    const ending end = launch({"-n", "4", "true"});
    CHECK(end.exit_code == 0);
    CHECK(end.output.empty());
    CHECK(end.error.empty());
  }

  TEST_CASE("the first failure is named, stops the others, and gives the exit code") {
    const ending end =
        launch({"-n", "4", "sh", "-c", "[ $RANK = 2 ] && { echo oh no >&2; exit 3; }; exec sleep 1000"});
    CHECK(end.exit_code == 3);
    CHECK(contains(end.error, "tutti-run: rank 2 failed first: it exited with code 3 (pid "));
    CHECK(contains(end.error, "tutti-run: ranks 0-1, 3: stopped by tutti-run\n"));
    CHECK(testing::count_of(end.error, "oh no") == 1);  // the only output, so it is not repeated
  }

  TEST_CASE("the last lines of the cause are repeated if the output was mixed") {
    const testing::temporary_directory folder;
    const std::string fifo = folder.fifo("spoken");
    const ending end =
        launch({"-n", "2", "sh", "-c",
                "if [ $RANK = 0 ]; then echo noise >&2; echo > $0; exec sleep 1000; fi\n"
                "read x < $0; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i >&2; done; exit 7",
                fifo});
    CHECK(end.exit_code == 7);
    CHECK(contains(end.error, "the last lines on the standard error of rank 1:\n  | line 3\n  | line 4\n"));
    CHECK(contains(end.error, "  | line 12\n"));
  }

  TEST_CASE("a rank ended by a signal") {
    const ending end = launch({"-n", "2", "sh", "-c", "[ $RANK = 1 ] && kill -KILL $$; exec sleep 1000"});
    CHECK(end.exit_code == 137);
    CHECK(contains(end.error, "rank 1 failed first: it was killed by SIGKILL (signal 9)"));
    CHECK(contains(end.error, "out-of-memory"));
  }

  TEST_CASE("the rank whose main threw first is named, although its peers end before it") {
    const ending end = launch({"-n", "3", TUTTI_DRILL_PATH, "throws_and_the_others_exit"});
    CHECK(end.exit_code == 1);
    CHECK(contains(end.error, "boom"));
    CHECK(contains(end.error, "tutti-run: rank 1 failed first: it exited with code 1"));
  }

  TEST_CASE("deaths are reported in their order, not in that of the ranks") {
    // Rank 0 ends after rank 1, and both before tutti-run checks.
    const testing::temporary_directory folder;
    const std::string pids = folder.fifo("pids");
    const std::string go = folder.fifo("go");
    launched job({"-n", "2", "--tag-output", "never", "sh", "-c",
                  "if [ $RANK = 1 ]; then echo $$ > $0; echo ready $$; read x < $1; exit 5; fi\n"
                  "read peer < $0; echo ready $$\n"
                  "while read id name state rest < /proc/$peer/stat && [ $state != Z ]; do :; done; exit 6",
                  pids, go});
    job.wait_for("ready", 2);
    job.wait_for("\n", 2);
    const auto lines = testing::lines_of(job.output());
    testing::watched one(std::stoi(lines[0].substr(6)));
    testing::watched other(std::stoi(lines[1].substr(6)));
    job.pause();
    const tutti::base::unique_fd start(::open(go.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::write(start.get(), "\n", 1) == 1);
    CHECK(one.dies());
    CHECK(other.dies());
    job.signal(SIGCONT);
    const ending end = job.finish();
    CHECK(contains(end.error, "rank 1 failed first: it exited with code 5"));
    CHECK(contains(end.error, "rank 0: exited with code 6 later on"));
    CHECK(end.exit_code == 5);
  }

  TEST_CASE("a rank may succeed before the others") {
    const ending end = launch({"-n", "3", "sh", "-c", "[ $RANK = 1 ] || exit 0; echo still here"});
    CHECK(end.exit_code == 0);
    CHECK(end.output == "still here\n");
    CHECK(end.error.empty());
  }

  TEST_CASE("--on-failure continue") {
    launched job({"-n", "2", "--on-failure", "continue", "sh", "-c",
                  "[ $RANK = 1 ] && exit 9; echo up; read line; echo done $line"});
    job.wait_for("up");
    job.write_input("now\n");
    const ending end = job.finish();
    CHECK(end.exit_code == 9);
    CHECK(end.output == "up\ndone now\n");
    CHECK(contains(end.error, "rank 1 failed first: it exited with code 9"));
    CHECK(contains(end.error, "rank 0: ended without error"));
  }

  TEST_CASE("signals reach every rank") {
    const waiting_ranks ranks;
    launched job(ranks.command({"-n", "3", "--tag-output", "never"},
                               "trap 'echo usr1 $RANK; exit 0' USR1; echo ready; silence"));
    job.wait_for("ready\n", 3);
    job.signal(SIGUSR1);
    const ending end = job.finish();
    CHECK(end.exit_code == 0);
    for (const char* line : {"usr1 0\n", "usr1 1\n", "usr1 2\n"}) CHECK(contains(end.output, line));
  }

  TEST_CASE("a signal that ends the job gives 128 + signal, whatever the ranks return") {
    const waiting_ranks ranks;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      launched job(ranks.command({"-n", "2"}, "trap 'exit 0' INT TERM HUP; echo ready; silence"));
      job.wait_for("ready\n", 2);
      job.signal(signal);
      const ending end = job.finish();
      CHECK(end.exit_code == 128 + signal);
      CHECK(contains(end.error, "the job was stopped by SIG"));
      CHECK(!contains(end.error, "failed first"));
    }
  }

  TEST_CASE("ranks have a grace period to end in order") {
    const waiting_ranks ranks;
    launched job(ranks.command({"-n", "2", "--tag-output", "never"},
                               "trap 'echo saved $RANK; exit 0' TERM; echo ready; silence"));
    job.wait_for("ready\n", 2);
    job.signal(SIGTERM);
    const ending end = job.finish();
    CHECK(contains(end.output, "saved 0\n"));
    CHECK(contains(end.output, "saved 1\n"));
    CHECK(!contains(end.error, "had to be killed"));
  }

  TEST_CASE("a wrapper that dies at once leaves the grace period to the wrapped program") {
    const waiting_ranks ranks;
    launched job(ranks.command({"-n", "1", "--tag-output", "always", "--grace", "1000"},
                               "bash -c 'trap \"echo saved; exit 0\" TERM; echo ready; silence'; true"));
    job.wait_for("ready\n");
    job.signal(SIGTERM);
    CHECK(contains(job.finish().output, "[0] saved\n"));
  }

  TEST_CASE("background processes of a shell that ignore SIGINT do not use up the grace period") {
    const waiting_ranks ranks;
    launched job(ranks.command({"-n", "2", "--grace", "1000"},
                               "trap 'exit 0' INT; bash -c 'echo ready; silence' & silence"));
    job.wait_for("ready\n", 2);
    job.signal(SIGINT);
    CHECK(job.finish().exit_code == 128 + SIGINT);
  }

  TEST_CASE("SIGKILL follows after the grace period") {
    launched job(
        {"-n", "2", "--grace", "0.1", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"});
    job.wait_for("ready\n", 2);
    job.signal(SIGTERM);
    const ending end = job.finish();
    CHECK(end.exit_code == 128 + SIGTERM);
    CHECK(contains(end.error, "rank 0-1 had to be killed"));
  }

  TEST_CASE("the same after a failure") {
    const testing::temporary_directory folder;
    const ending end = launch({"-n", "2", "--grace", "0.1", "sh", "-c",
                               "[ $RANK = 1 ] && { read x < $0; exit 4; }\n"
                               "trap '' TERM; echo > $0; while :; do sleep 1000; done",
                               folder.fifo("deaf")});
    CHECK(end.exit_code == 4);
    CHECK(contains(end.error, "rank 0: killed by tutti-run: still there 0.1 s after SIGTERM"));
  }

  TEST_CASE("a second SIGINT kills at once") {
    const waiting_ranks ranks;
    launched job(ranks.command({"-n", "2", "--grace", "1000", "--tag-output", "never"},
                               "trap 'echo no' INT; echo ready; silence"));
    job.wait_for("ready\n", 2);
    job.signal(SIGINT);
    job.wait_for("no\n", 2);
    job.signal(SIGINT);
    CHECK(job.finish().exit_code == 128 + SIGINT);
  }

  TEST_CASE("a stopped rank is ended as well") {
    launched job({"-n", "2", "sh", "-c", "echo ready; kill -STOP $$"});
    job.wait_for("ready\n", 2);
    job.signal(SIGTERM);
    CHECK(job.finish().exit_code == 128 + SIGTERM);
  }

  TEST_CASE("--timeout") {
    const ending end = launch({"-n", "2", "--timeout", "0.1", "sleep", "1000"});
    CHECK(end.exit_code == 124);
    CHECK(contains(end.error, "longer than --timeout 0.1"));
    CHECK(launch({"-n", "2", "--timeout", "1000", "true"}).exit_code == 0);
  }

  TEST_CASE("signals that the launcher has inherited as ignored stay ignored") {
    launched job(
        {"-n", "1", "sh", "-c",
         "trap '' HUP; exec \"$0\" -n 2 sh -c 'echo pid $PPID; read line; [ $RANK = 1 ] || echo end'",
         testing::launcher_path()});
    job.wait_for("pid ", 2);
    job.wait_for("\n", 2);
    const pid_t inner = std::stoi(job.output().substr(job.output().find("pid ") + 4));
    REQUIRE(::kill(inner, SIGHUP) == 0);
    job.write_input("x\n");
    const ending end = job.finish();
    CHECK(end.exit_code == 0);
    CHECK(end.output.ends_with("end\n"));
  }

  TEST_CASE("standard input goes to rank 0 alone") {
    launched job({"-n", "3", "sh", "-c", "while read line; do echo $RANK read $line; done"});
    job.write_input("one\ntwo\n");
    CHECK(job.finish().output == "0 read one\n0 read two\n");
  }

  TEST_CASE("--on-failure restart-all: all ranks again, with new logs and a new store") {
    const testing::temporary_directory folder;
    const ending end =
        launch({"-n", "2", "--on-failure", "restart-all", "--log-dir", folder.path(), "sh", "-c",
                "echo start $TUTTI_RESTART_COUNT of rank $RANK at $MASTER_PORT\n"
                "[ $TUTTI_RESTART_COUNT = 2 ] && exit 0\n"
                "[ $RANK = 1 ] && exit 6; exec sleep 1000"});
    CHECK(end.exit_code == 0);
    CHECK(contains(end.error, "tutti-run: restart 1 of 3: rank 1 exited with code 6 (pid "));
    CHECK(contains(end.error, "tutti-run: restart 2 of 3: rank 1 exited with code 6 (pid "));
    CHECK(testing::count_of(end.error, "\n") == 2);
    CHECK(contains(testing::contents(folder.path() + "/rank-1.out"), "start 0 of rank 1"));
    CHECK(contains(testing::contents(folder.path() + "/rank-1.restart-1.out"), "start 1 of rank 1"));
    CHECK(contains(testing::contents(folder.path() + "/rank-0.restart-2.out"), "start 2 of rank 0"));
    const auto port = [&](const char* log) {
      const std::string text = testing::contents(folder.path() + log);
      return text.substr(text.rfind(' '));
    };
    CHECK(port("/rank-1.out") != port("/rank-1.restart-1.out"));
  }

  TEST_CASE("--on-failure restart: only the failed rank, with new logs and the same store") {
    const testing::temporary_directory folder;
    const ending end =
        launch({"-n", "2", "--on-failure", "restart", "--log-dir", folder.path(), "sh", "-c",
                "echo start $TUTTI_RESTART_COUNT of rank $RANK, rejoin $TUTTI_REJOIN at $MASTER_PORT\n"
                "[ $RANK = 1 ] && [ $TUTTI_RESTART_COUNT -lt 2 ] && exit 6\n"
                "[ $RANK = 1 ] && touch " +
                    folder.path() +
                    "/end\n"
                    "until [ -e " +
                    folder.path() + "/end ]; do sleep 0.02; done"});
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(contains(end.error, "tutti-run: rank 1 exited with code 6 (pid "));
    CHECK(contains(end.error, "; it is started anew (1 of 3)\n"));
    CHECK(contains(end.error, "; it is started anew (2 of 3)\n"));
    CHECK(testing::count_of(end.error, "\n") == 2);
    const std::string first = testing::contents(folder.path() + "/rank-1.out");
    CHECK(contains(first, "start 0 of rank 1, rejoin 1 at "));
    const std::string where = first.substr(first.rfind(' '));
    CHECK(testing::contents(folder.path() + "/rank-1.restart-1.out") ==
          "start 1 of rank 1, rejoin 1 at" + where);
    CHECK(testing::contents(folder.path() + "/rank-1.restart-2.out") ==
          "start 2 of rank 1, rejoin 1 at" + where);
    CHECK(testing::contents(folder.path() + "/rank-0.out") == "start 0 of rank 0, rejoin 1 at" + where);
  }

  TEST_CASE("--on-failure restart: after the last restart a failure ends the others") {
    const ending end = launch({"-n", "2", "--on-failure", "restart", "--max-restarts", "2", "sh", "-c",
                               "[ $RANK = 1 ] && exit $((10 + TUTTI_RESTART_COUNT)); exec sleep 1000"});
    CHECK(end.exit_code == 12);
    CHECK(testing::count_of(end.error, "it is started anew") == 2);
    CHECK(contains(end.error, "tutti-run: rank 1 failed first: it exited with code 12"));
  }

  TEST_CASE("after the last restart the job ends with the code of the last failure") {
    const ending end =
        launch({"-n", "2", "--max-restarts", "2", "sh", "-c", "exit $((10 + TUTTI_RESTART_COUNT))"});
    CHECK(end.exit_code == 12);
    CHECK(testing::count_of(end.error, "tutti-run: restart ") == 2);
    CHECK(contains(end.error, "tutti-run: given up after 2 restarts"));
  }

  TEST_CASE("no restart after a stop by the user, or of a program that cannot be started") {
    const waiting_ranks ranks;
    launched job(ranks.command({"-n", "2", "--max-restarts", "5"}, "echo ready; silence"));
    job.wait_for("ready\n", 2);
    job.signal(SIGTERM);
    const ending end = job.finish();
    CHECK(end.exit_code == 128 + SIGTERM);
    CHECK(!contains(end.error, "restart"));
    const testing::temporary_directory folder;
    const std::string script = folder.path() + "/script";
    {
      std::ofstream(script) << "#!/no/such/shell\n";
    }
    REQUIRE(::chmod(script.c_str(), 0700) == 0);
    const ending bad = launch({"-n", "2", "--max-restarts", "5", script});
    CHECK(bad.exit_code == 127);
    CHECK(!contains(bad.error, "restart"));
  }
}
