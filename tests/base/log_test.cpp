// SPDX-License-Identifier: Apache-2.0
// The level is read once per process, so each test inspects the output of a process of its own.
#include "base/log.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace tutti::base;

namespace {

// What the named test case of this program writes to stderr with TUTTI_LOG=`level` (nullptr: unset).
std::string written_by(const char* test_case, const char* level) {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  unique_fd out(ends[0]);
  unique_fd in(ends[1]);
  const std::string filter = std::string("--test-case=") + test_case;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (level != nullptr) {
      ::setenv("TUTTI_LOG", level, 1);
    } else {
      ::unsetenv("TUTTI_LOG");
    }
    ::unsetenv("TUTTI_LOOP");
    ::dup2(in.get(), STDERR_FILENO);
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDOUT_FILENO);
    ::execl("/proc/self/exe", "log_test", filter.c_str(), "--no-skip", static_cast<char*>(nullptr));
    ::_exit(99);
  }
  in.reset();
  std::string text;
  char some[4096];
  for (ssize_t n; (n = ::read(out.get(), some, sizeof some)) > 0;)
    text.append(some, static_cast<std::size_t>(n));
  int code = 0;
  REQUIRE(::waitpid(child, &code, 0) == child);
  REQUIRE(code == 0);
  return text;
}

}  // namespace

TEST_CASE("probe: one line of each level" * doctest::skip()) {
  log_error("e");
  log_warning("w");
  log_info("i");
  log(log_level::debug, "d");
}

TEST_CASE("probe: lines of ranks" * doctest::skip()) {
  log_error("before");
  set_log_rank(3);
  log_error("of the rank");
  std::thread([] { log_error("another thread"); }).join();
  set_log_rank(-1);
  log_error("after");
}

TEST_CASE("probe: a rank that logs nothing" * doctest::skip()) {
  set_log_rank(3);
  set_log_rank(-1);
}

TEST_CASE("probe: a long line" * doctest::skip()) { log_error(std::string(100'000, 'x') + "end"); }

TEST_CASE("probe: many threads" * doctest::skip()) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      set_log_rank(t);
      for (int i = 0; i < 100; ++i) log_error(std::string(50, static_cast<char>('a' + t)));
    });
  for (std::thread& t : threads) t.join();
}

TEST_CASE("TUTTI_LOG sets the least severe level that is shown") {
  const char* probe = "probe: one line of each level";
  const std::string error = "tutti error: e\n", warning = "tutti warning: w\n", info = "tutti info: i\n",
                    debug = "tutti debug: d\n";
  CHECK(written_by(probe, nullptr) == error + warning);
  CHECK(written_by(probe, "error") == error);
  CHECK(written_by(probe, "warning") == error + warning);
  CHECK(written_by(probe, "info") == error + warning + info);
  CHECK(written_by(probe, "debug") == error + warning + info + debug);
  CHECK(written_by(probe, "") == error + warning);
}

TEST_CASE("an invalid TUTTI_LOG is reported once, even if nothing is logged") {
  const std::string warned =
      "tutti warning: TUTTI_LOG='loud' is none of error, warning, info and debug; warning is used\n";
  CHECK(written_by("probe: one line of each level", "loud") == warned + "tutti error: e\ntutti warning: w\n");
  CHECK(written_by("probe: a rank that logs nothing", "loud") ==
        "tutti[3] warning" + warned.substr(std::string("tutti warning").size()));
}

TEST_CASE("lines carry the rank of their thread") {
  CHECK(
      written_by("probe: lines of ranks", nullptr) ==
      "tutti error: before\ntutti[3] error: of the rank\ntutti error: another thread\ntutti error: after\n");
}

TEST_CASE("a very long line is truncated and stays one line") {
  const std::string text = written_by("probe: a long line", nullptr);
  CHECK(text.size() > 1000);
  CHECK(text.size() < 4096);
  CHECK(text.rfind("tutti error: xxx", 0) == 0);
  CHECK(text.find('\n') == text.size() - 1);
}

TEST_CASE("lines of several threads do not mix") {
  const std::string text = written_by("probe: many threads", nullptr);
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < text.size(); ++lines) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end != text.npos);
    const std::string line = text.substr(begin, end - begin);
    const char rank = line.size() > 6 ? line[6] : '?';
    CHECK(line == std::string("tutti[") + rank +
                      "] error: " + std::string(50, static_cast<char>('a' + (rank - '0'))));
    begin = end + 1;
  }
  CHECK(lines == 400);
}
