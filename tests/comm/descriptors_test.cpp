// SPDX-License-Identifier: Apache-2.0
// A small program with any number of free descriptors succeeds or ends with errc::resources. It never hangs
// or crashes.
#include "support/local_world.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr int well = 0, short_of_descriptors = 1, heard = 2, wrong = 3;

int open_descriptors() {
  int n = 0;
  DIR* const all = ::opendir("/proc/self/fd");
  if (all == nullptr) return -1;
  while (::readdir(all) != nullptr) ++n;
  ::closedir(all);
  return n - 3;  // ".", ".." and the directory's own descriptor
}

void limit_descriptors(rlim_t most) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

task<> communicate(communicator world) {
  std::vector<double> sums(2000, 1.0);
  co_await world.all_reduce(sums, tutti::sum);
  TUTTI_EXPECT(sums.front() == world.size() && sums.back() == world.size());
  const int next = (world.rank() + 1) % world.size(), last = (world.rank() + world.size() - 1) % world.size();
  shared_vector<int> mine(50'000, world.rank()), theirs(50'000);
  request sending = world.isend(mine, next);
  co_await world.recv(theirs, last);
  co_await sending;
  TUTTI_EXPECT(theirs.front() == last && theirs.back() == last);
}

// Runs in a process of its own with `spare` free descriptors. Returns its result.
int ending_with(int spare, const std::string& transport) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("TUTTI_LOG", "error", 1);
    const int open = open_descriptors();
    limit_descriptors(static_cast<rlim_t>(open + spare));
    int code = wrong;
    try {
      run_local(3, over(transport, std::chrono::seconds(2)), communicate);
      code = well;
    } catch (const error& e) {
      // The rank without descriptors reports errc::resources. Another rank may first see a missing or ended
      // connection.
      if (e.code() == errc::resources) code = short_of_descriptors;
      if (e.code() == errc::peer_failed || e.code() == errc::timed_out || e.code() == errc::join_failed)
        code = heard;
      if (code == wrong)
        std::fprintf(stderr, "with %d spare descriptors over %s: %s\n", spare, transport.c_str(), e.what());
    } catch (const std::exception& e) {
      const std::string text = e.what();
      if (text.find("oo many open files") != text.npos) code = short_of_descriptors;
      if (code == wrong)
        std::fprintf(stderr, "with %d spare descriptors over %s: %s\n", spare, transport.c_str(),
                     text.c_str());
    }
    ::_exit(code);
  }
  for (int i = 0; i < 60'000; ++i) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ::usleep(1000);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;  // it hung
}

}  // namespace

TEST_SUITE("comm/descriptors") {
  TEST_CASE("a world with every other number of spare descriptors, from none to enough") {
    for (const std::string& transport : transports) {
      CAPTURE(transport);
      int shortages = 0, rumours = 0, successes = 0;
      for (int spare = 0; spare < 200 && successes < 3; spare += 2) {
        CAPTURE(spare);
        const int end = ending_with(spare, transport);
        CHECK((end == well || end == short_of_descriptors || end == heard));
        rumours += end == heard ? 1 : 0;
        shortages += end == short_of_descriptors ? 1 : 0;
        successes = end == well ? successes + 1 : 0;
      }
      CHECK(shortages > 5);
      CHECK(rumours < shortages);
      CHECK(successes == 3);
    }
  }
}
