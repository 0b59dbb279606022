// SPDX-License-Identifier: Apache-2.0
#include "common/forked_world.hpp"

#include <doctest/doctest.h>
#include <unistd.h>
#include <array>
#include <cstddef>
#include <span>

TEST_CASE("ranks agree on what rank 0 tells, on maxima and on sums") {
  const int code = perf::run_forked(3, [](perf::forked_world world) {
    bool right = world.size() == 3;
    for (int turn = 0; turn < 100; ++turn) {
      int told = world.rank() == 0 ? turn : -1;
      world.tell(std::as_writable_bytes(std::span(&told, 1)));
      std::array<double, 2> values{static_cast<double>(world.rank()), static_cast<double>(-turn)};
      world.maximum(values);
      double sum = world.rank();
      world.sum(std::span(&sum, 1));
      std::array<int, 3> all{};
      const int own = 10 * world.rank();
      world.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
      world.barrier();
      right = right && told == turn && values[0] == 2 && values[1] == -turn && sum == 3 && all[0] == 0 &&
              all[2] == 20;
    }
    return right ? 0 : 1;
  });
  CHECK(code == 0);
}

TEST_CASE("a rank that fails ends the others, and its exit code is the program's") {
  CHECK(perf::run_forked(2, [](perf::forked_world world) {
          if (world.rank() == 1) return 7;
          for (;;) ::pause();
        }) == 7);
}

TEST_CASE("data larger than the control page are refused") {
  CHECK(perf::run_forked(1, [](perf::forked_world world) {
          std::array<std::byte, perf::forked_world::most_bytes + 1> much{};
          try {
            world.tell(much);
          } catch (const std::exception&) {
            return 3;
          }
          return 0;
        }) == 3);
}
