// SPDX-License-Identifier: Apache-2.0
// Without shared memory, collectives work by messages. This test runs first in its process, because memory
// that the arena has already can be shared.
#include "base/shared_memory.hpp"
#include "support/instrumented.hpp"
#include "support/local_world.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <numeric>
#include <optional>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

// No descriptor can be opened while this object lives.
class no_descriptors {
 public:
  no_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

task<> sums(communicator world) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<int> x(count);
    std::iota(x.begin(), x.end(), world.rank());
    co_await world.all_reduce(x, sum);
    const int ranks = world.size();
    for (std::size_t i = 0; i < count; ++i)
      TUTTI_EXPECT(x[i] == ranks * static_cast<int>(i) + ranks * (ranks - 1) / 2);
  }
  co_await world.barrier();
}

task<> without_descriptors(communicator world, std::optional<no_descriptors>* none) {
  // Connects every rank to every other first.
  int right = 0;
  for (int d = 1; d < world.size(); ++d) {
    request sending = world.isend(right, (world.rank() + d) % world.size());
    co_await world.recv(right, (world.rank() + world.size() - d) % world.size());
    co_await sending;
  }
  int go = 0;
  if (world.rank() == 0) {
    for (int r = 1; r < world.size(); ++r) co_await world.recv(go, r, 2);
    none->emplace();
    for (int r = 1; r < world.size(); ++r) co_await world.send(go, r, 3);
  } else {
    co_await world.send(go, 0, 2);
    co_await world.recv(go, 0, 3);
  }
  co_await sums(world);
}

}  // namespace

TEST_CASE("collective segment: without shared memory collectives work by messages") {
  if (instrumented) TUTTI_SKIP("a sanitizer needs descriptors itself to look at memory");
  const bool first = base::shared_memory_in_use().regions == 0;
  std::optional<no_descriptors> none;
  CHECK_NOTHROW(run_local(
      3, over("shm"), [&none](communicator world) { return without_descriptors(std::move(world), &none); }));
  CHECK(none.has_value());
  if (first) CHECK(base::shared_memory_in_use().regions == 0);
}

TEST_CASE(
    "collective segment: more ranks than one supports have two levels, and very many work by messages") {
  CHECK_NOTHROW(run_local(17, over("shm"), sums));
  CHECK_NOTHROW(run_local(40, over("shm"), sums));
}
