// SPDX-License-Identifier: Apache-2.0
// Resources of a rank for each peer and each communicator: descriptors, heap, shared memory.
#include "support/local_world.hpp"

#include <dirent.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

// Totals of this process, for all ranks.
struct footprint {
  double descriptors = 0;
  double heap = 0;    // bytes in use
  double shared = 0;  // bytes of shared mappings, touched or not

  footprint operator-(const footprint& o) const {
    return {descriptors - o.descriptors, heap - o.heap, shared - o.shared};
  }
  footprint operator/(double by) const { return {descriptors / by, heap / by, shared / by}; }
};

footprint now_in_use() {
  footprint f;
  if (DIR* const all = ::opendir("/proc/self/fd")) {
    while (::readdir(all) != nullptr) ++f.descriptors;
    ::closedir(all);
  }
  const auto heap = ::mallinfo2();
  f.heap = static_cast<double>(heap.uordblks + heap.hblkhd);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, access) == 3 &&
        access[3] == 's')
      f.shared += static_cast<double>(end - begin);
  }
  return f;
}

// A message between each pair, too long for the eager protocol.
task<> meet_all(communicator world) {
  std::vector<std::byte> out(300'000), in(300'000);
  for (int distance = 1; distance < world.size(); ++distance) {
    const int to = (world.rank() + distance) % world.size();
    const int from = (world.rank() - distance + world.size()) % world.size();
    request sending = world.isend(out, to);
    co_await world.recv(in, from);
    co_await sending;
  }
}

struct measured {
  footprint all;
  footprint communicators;  // added by the communicators
};
constexpr int communicators = 32;

task<> measure(communicator world, measured* result) {
  co_await meet_all(world);
  co_await world.barrier();
  if (world.rank() == 0) result->all = now_in_use();
  co_await world.barrier();
  std::vector<communicator> more;
  more.reserve(communicators);
  for (int i = 0; i < communicators; ++i) {
    communicator one = co_await world.duplicate();
    more.push_back(std::move(one));
    co_await more.back().barrier();
  }
  co_await world.barrier();
  if (world.rank() == 0) result->communicators = now_in_use() - result->all;
  co_await world.barrier();
}

// In a process of its own, with a fresh heap.
measured in_world_of(int ranks, const std::string& transport) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    measured result;
    try {
      run_local(ranks, over(transport),
                [&result](communicator world) { return measure(std::move(world), &result); });
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
    ::_exit(::write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  ::close(ends[1]);
  measured result;
  const ssize_t got = ::read(ends[0], &result, sizeof result);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(got == static_cast<ssize_t>(sizeof result));
  return result;
}

void say(const std::string& what, const footprint& f) {
  std::printf("%s: %.2f descriptors, %.0f bytes of heap, %.0f of shared memory\n", what.c_str(),
              f.descriptors, f.heap, f.shared);
}

}  // namespace

TEST_SUITE("comm/footprint") {
  TEST_CASE("the descriptors and memory of a peer and of a communicator have known small bounds") {
    for (const std::string& transport : transports) {
      CAPTURE(transport);
      // a + b ranks + c ranks (ranks - 1): the second difference is 8 c.
      const measured two = in_world_of(2, transport), four = in_world_of(4, transport),
                     six = in_world_of(6, transport);
      const footprint peer = ((six.all - four.all) - (four.all - two.all)) / 8;
      const footprint communicator = four.communicators / (4 * communicators);
      say(transport + ", a peer", peer);
      say(transport + ", a communicator of 4 ranks", communicator);
      // See perf/NOTES.md.
      const bool sockets = transport == "tcp";
      CHECK(peer.descriptors <= (sockets ? 1.0 : 2.5));  // a quarter: one that is being closed
      CHECK(peer.heap <= (sockets ? 96 : 24) * 1024);    // pools grow in steps
      CHECK(peer.shared <= (sockets ? 0 : 5) * 1024 * 1024);
      CHECK(communicator.descriptors <= 0.125);  // regions of shared memory, which double
      CHECK(communicator.heap <= 8 * 1024);
    }
  }
}
