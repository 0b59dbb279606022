// SPDX-License-Identifier: Apache-2.0
#include "launch/job_output.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "launched.hpp"

using namespace tutti::launch;
using testing::contents;
using testing::ending;
using testing::launch;
using testing::launched;

TEST_SUITE("launch/job_output") {
  TEST_CASE("output of only one rank is passed unchanged") {
    CHECK(launch({"-n", "4", "sh", "-c", "[ $RANK = 0 ] && echo '4 ranks, sum 10'; true"}).output ==
          "4 ranks, sum 10\n");
    CHECK(launch({"-n", "4", "sh", "-c", "[ $RANK = 3 ] && printf 'no newline'; true"}).output ==
          "no newline");
  }

  TEST_CASE("a lone rank's unfinished line is passed at once") {
    launched job({"-n", "2", "sh", "-c",
                  "[ $RANK = 0 ] || exit 0; printf '\\r50 %%'; read line; printf '\\r100 %%\\n'"});
    job.wait_for("\r50 %");
    job.write_input("\n");
    CHECK(job.finish().output == "\r50 %\r100 %\n");
  }

  TEST_CASE("standard output and error stay separate") {
    const ending end = launch({"-n", "2", "--tag-output", "always", "sh", "-c", "echo out; echo err >&2"});
    CHECK(testing::lines_of(end.output) == std::vector<std::string>{"[0] out", "[1] out"});
    CHECK(testing::lines_of(end.error) == std::vector<std::string>{"[0] err", "[1] err"});
  }

  TEST_CASE("lines of many ranks arrive whole, in order within a rank, and none is lost") {
    constexpr int ranks = 4;
    constexpr int lines = 20000;  // more than 1 MiB a rank
    const ending end = launch(
        {"-n", "4", "--tag-output", "always", "sh", "-c",
         "i=0; while [ $i -lt 20000 ]; do echo $i the quick brown fox jumps over the lazy dog, rank $RANK; "
         "i=$((i+1)); done"});
    CHECK(end.exit_code == 0);
    REQUIRE(end.output.size() > 4 * 1024 * 1024);
    std::vector<int> next(ranks, 0);
    bool intact = true;
    std::string_view text = end.output;
    while (!text.empty()) {
      const std::size_t newline = text.find('\n');
      REQUIRE(newline != std::string_view::npos);
      const std::string_view line = text.substr(0, newline);
      const int rank = line.size() > 1 ? line[1] - '0' : -1;
      REQUIRE((rank >= 0 && rank < ranks));
      const std::string id = std::to_string(rank);
      const std::string count = std::to_string(next[static_cast<std::size_t>(rank)]++);
      intact = intact &&
               line == "[" + id + "] " + count + " the quick brown fox jumps over the lazy dog, rank " + id;
      text.remove_prefix(newline + 1);
    }
    CHECK(intact);
    CHECK(next == std::vector<int>(ranks, lines));
  }

  TEST_CASE("a lone rank's bytes pass unchanged, with or without newlines") {
    const ending end = launch({"-n", "2", "sh", "-c", "[ $RANK = 1 ] || head -c 3000000 /dev/zero"});
    CHECK(end.output == std::string(3000000, '\0'));
  }

  TEST_CASE("--log-dir keeps every stream of every rank, unprefixed") {
    const testing::temporary_directory folder;
    const std::string logs = folder.path() + "/deep/logs";
    const ending end =
        launch({"-n", "2", "--log-dir", logs, "sh", "-c", "echo out $RANK; printf 'err %s' $RANK >&2"});
    CHECK(end.exit_code == 0);
    CHECK(contents(logs + "/rank-0.out") == "out 0\n");
    CHECK(contents(logs + "/rank-1.out") == "out 1\n");
    CHECK(contents(logs + "/rank-0.err") == "err 0");
    CHECK(contents(logs + "/rank-1.err") == "err 1");
    CHECK(testing::count_of(end.output, "out") == 2);
    const ending lone = launch({"-n", "1", "--log-dir", logs, "echo", "x"});
    CHECK(lone.output == "x\n");
    CHECK(contents(logs + "/rank-0.out") == "x\n");
  }

  TEST_CASE("a log directory that cannot be made") {
    const ending end = launch({"-n", "2", "--log-dir", "/dev/null/logs", "true"});
    CHECK(end.exit_code == 1);
    CHECK(end.error.find("'/dev/null/logs' of --log-dir") != std::string::npos);
  }

  TEST_CASE("a log file that cannot be made ends the job before it begins, or again") {
    const testing::temporary_directory folder;
    REQUIRE(::mkdir((folder.path() + "/rank-0.err").c_str(), 0700) == 0);
    const ending end = launch({"-n", "2", "--log-dir", folder.path(), "true"});
    CHECK(end.exit_code == 1);
    CHECK(end.error.find("rank-0.err") != std::string::npos);

    const testing::temporary_directory other;
    REQUIRE(::mkdir((other.path() + "/rank-1.restart-1.out").c_str(), 0700) == 0);
    const ending again = launch({"-n", "2", "--on-failure", "restart", "--log-dir", other.path(), "sh", "-c",
                                 "[ $RANK = 0 ] && exec sleep 1000; exit 7"});
    CHECK(again.exit_code == 7);
    CHECK(again.error.find("cannot start rank 1 anew") != std::string::npos);
    CHECK(again.error.find("rank 1 failed first") != std::string::npos);
  }

  TEST_CASE("a full disk does not end the job, and is reported") {
    const testing::temporary_directory folder;
    REQUIRE(::symlink("/dev/full", (folder.path() + "/rank-1.out").c_str()) == 0);
    const ending end = launch({"-n", "2", "--log-dir", folder.path(), "sh", "-c", "echo hello; echo again"});
    CHECK(end.exit_code == 1);
    CHECK(testing::count_of(end.output, "hello\n") == 2);
    CHECK(testing::count_of(end.output, "again\n") == 2);
    CHECK(end.error.find("rank-1.out' is incomplete: No space left on device") != std::string::npos);
  }

  TEST_CASE("a limit on file sizes does not end the job, and is reported with the cure") {
    const testing::temporary_directory folder;
    const std::string script =
        "ulimit -f 8; exec \"$0\" -n 2 --log-dir \"$1\" sh -c 'yes hello | head -c 100000; echo done'";
    const ending end = launch({"-n", "1", "sh", "-c", script, testing::launcher_path(), folder.path()});
    CHECK(end.exit_code == 1);
    CHECK(testing::count_of(end.output, "done\n") == 2);
    CHECK(testing::count_of(end.error,
                            "is incomplete: File too large; raise the limit of file sizes (ulimit -f)") == 1);
  }

  TEST_CASE("of several files without space, one is reported") {
    const testing::temporary_directory folder;
    for (const char* name : {"/rank-0.out", "/rank-1.out", "/rank-1.err"})
      REQUIRE(::symlink("/dev/full", (folder.path() + name).c_str()) == 0);
    const ending end =
        launch({"-n", "2", "--log-dir", folder.path(), "sh", "-c", "echo hello; echo oh >&2; echo again"});
    CHECK(end.exit_code == 1);
    CHECK(testing::count_of(end.error, "is incomplete") == 1);
    CHECK(testing::count_of(end.output, "again\n") == 2);
  }

  TEST_CASE("--quiet writes output only to the log files; the last lines of the cause are printed") {
    const testing::temporary_directory folder;
    const ending end = launch(
        {"-n", "1", "--quiet", "--log-dir", folder.path(), "sh", "-c", "echo out; echo why >&2; exit 3"});
    CHECK(end.exit_code == 3);
    CHECK(end.output.empty());
    CHECK(contents(folder.path() + "/rank-0.out") == "out\n");
    CHECK(contents(folder.path() + "/rank-0.err") == "why\n");
    CHECK(end.error.starts_with("tutti-run: rank 0 failed"));
    CHECK(end.error.find("  | why\n") != std::string::npos);
  }

  TEST_CASE("if the reader of the output ends, the job ends quietly") {
    launched job({"-n", "2", "sh", "-c", "while :; do echo y; done"});
    job.wait_for("y\n", 2);
    job.close_output();
    const ending end = job.finish();
    CHECK(end.exit_code == 128 + SIGPIPE);
    CHECK(end.error.empty());
  }

  TEST_CASE("a reader that takes nothing does not keep a launcher that is to end") {
    launched stopped({"-n", "2", "--grace", "1", "yes"});
    launched killed({"-n", "2", "--grace", "1", "yes"});
    launched late({"-n", "2", "--grace", "1", "--timeout", "1", "yes"});
    for (launched* job : {&stopped, &killed, &late}) job->wait_for("y\n", 2);
    for (const launched* job : {&stopped, &killed}) job->wait_until_output_is_full();
    stopped.signal(SIGTERM);
    killed.insist(SIGINT);
    for (const launched* job : {&stopped, &late}) CHECK(testing::watched(job->pid()).dies());
    const ending end = stopped.finish();
    CHECK(end.exit_code == 128 + SIGTERM);
    CHECK(end.error.find("standard output is incomplete: nobody read it") != std::string::npos);
    CHECK(killed.finish().exit_code == 128 + SIGINT);
    CHECK(late.finish().exit_code == 124);
  }

  TEST_CASE("the same for a lone rank, which writes to the pipe directly") {
    launched job({"-n", "1", "yes"});
    job.wait_for("y\n");
    job.close_output();
    const ending end = job.finish();
    CHECK(end.exit_code == 128 + SIGPIPE);
    CHECK(end.error.empty());
  }

  TEST_CASE("a process that left its rank's group does not delay the end") {
    launched job({"-n", "2", "sh", "-c", "[ $RANK = 0 ] || exit 0; setsid sleep 1000 & echo left $!"});
    job.wait_for("\n");
    const pid_t outsider = std::stoi(job.output().substr(job.output().find("left ") + 5));
    // The process holds the rank's pipes, not those of tutti-run, so this returns.
    const ending end = job.finish();
    CHECK(end.exit_code == 0);
    ::kill(outsider, SIGKILL);
  }

  TEST_CASE("streams that lead to one place share their lines") {
    const ending end = launch({"-n", "1", "sh", "-c",
                               "exec 2>&1; exec \"$0\" -n 2 --tag-output always sh -c "
                               "'for i in 1 2 3 4 5 6 7 8 9; do echo out; echo err >&2; done'",
                               testing::launcher_path()});
    CHECK(end.error.empty());
    for (const std::string& line : testing::lines_of(end.output))
      CHECK((line == "[0] out" || line == "[1] out" || line == "[0] err" || line == "[1] err"));
    CHECK(testing::count_of(end.output, "\n") == 36);
  }
}
