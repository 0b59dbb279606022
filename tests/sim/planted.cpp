// SPDX-License-Identifier: Apache-2.0
// A library with a planted bug: runs schedules until one finds the bug, then repeats that one. Succeeds if
// both fail. A few schedules at a time share a process, because the bug may end it. With the argument
// `elastic`: schedules of worlds that grow and shrink.
#define DOCTEST_CONFIG_IMPLEMENT  // because the scenarios share code with tests
#include "sim/elastic_job.hpp"
#include "sim/scenarios.hpp"

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace {

constexpr std::uint64_t most_schedules = 10'000;
constexpr std::uint64_t at_a_time = 100;

struct finding {
  std::uint64_t seed;
  std::string words;
};

using schedule = void (*)(std::uint64_t seed);

void run_elastic(std::uint64_t seed) {
  tutti::test::elastic_census all;
  tutti::test::run_elastic_job(seed, &all);
}

// Returns the first of these schedules that fails. A child writes the number of the schedule that it begins,
// and its error.
std::optional<finding> first_failure(schedule run, std::uint64_t first, std::uint64_t count) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::abort();
  const pid_t child = ::fork();
  if (child < 0) std::abort();
  if (child == 0) {
    ::close(ends[0]);
    std::FILE* const out = ::fdopen(ends[1], "w");
    if (std::freopen("/dev/null", "w", stderr) == nullptr) std::abort();
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      std::fprintf(out, "%llu\n", static_cast<unsigned long long>(seed));
      std::fflush(out);
      try {
        run(seed);
      } catch (const std::exception& e) {
        const std::string words = e.what();
        std::fprintf(out, "%s\n", words.substr(0, words.find('\n')).c_str());
        std::fflush(out);
        ::_exit(1);
      }
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::FILE* const in = ::fdopen(ends[0], "r");
  finding last{first, ""};
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), in) != nullptr) {
    unsigned long long seed = 0;
    if (std::sscanf(line.data(), "%llu", &seed) == 1) {
      last.seed = seed;
    } else {
      last.words = line.data();
    }
  }
  std::fclose(in);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFSIGNALED(status)) last.words = std::string("ended by ") + ::strsignal(WTERMSIG(status)) + "\n";
  return last;
}

}  // namespace

int main(int argc, char** argv) {
  const schedule run =
      argc > 1 && std::string_view(argv[1]) == "elastic" ? run_elastic : tutti::test::run_schedule;
  for (std::uint64_t seed = 1; seed < most_schedules; seed += at_a_time) {
    const std::optional<finding> found = first_failure(run, seed, at_a_time);
    if (!found) continue;
    std::printf("found by seed %llu: %s", static_cast<unsigned long long>(found->seed), found->words.c_str());
    const std::optional<finding> again = first_failure(run, found->seed, 1);
    if (!again || again->words != found->words) {
      std::printf("... and not found again\n");
      return 1;
    }
    return 0;
  }
  std::printf("not found in %llu schedules\n", static_cast<unsigned long long>(most_schedules));
  return 1;
}
