// SPDX-License-Identifier: Apache-2.0
// Two operations in flight on one buffer are an error that names both.
#include "ops/arguments.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <array>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("an operation on a buffer that another writes is refused, and the error names both calls") {
  REQUIRE(ops::checks_of_buffers() == ops::buffer_checks::error);  // set by this test's environment
  run_local(1, [](communicator world) -> task<> {
    std::array<int, 4> x{};
    request first = world.irecv(x, 0, 1);
    const int first_line = __LINE__ - 1;
    const failure f = co_await failure_in(world.all_reduce(std::span<int>(x).subspan(3), sum));
    TUTTI_EXPECT(f.code == errc::invalid_argument);
    TUTTI_EXPECT(f.says("irecv") || f.says("recv at"));
    TUTTI_EXPECT(f.says("buffer_check_test.cpp:" + std::to_string(first_line)));
    TUTTI_EXPECT(f.says("by 4 bytes"));
    const failure sent = co_await failure_in(world.send(x[0], 0, 2));
    TUTTI_EXPECT(sent.code == errc::invalid_argument);
    first.cancel();
    const failure ended = co_await failure_awaiting(&first);
    TUTTI_EXPECT(ended.code == errc::cancelled);
    co_await world.all_reduce(x, sum);  // the buffer is free again
  });
}

TEST_CASE("reading one buffer twice, and adjacent buffers, are valid") {
  run_local(2, [](communicator world) -> task<> {
    std::vector<char> out(1 << 20);
    std::array<std::vector<char>, 2> in{std::vector<char>(out.size()), std::vector<char>(out.size())};
    if (world.rank() == 0) {
      request a = world.isend(out, 1);
      request b = world.isend(out, 1);
      co_await a;
      co_await b;
    } else {
      const std::span<char> whole(in[0]);
      request a = world.irecv(whole.first(10), 0, 5);
      request b = world.irecv(whole.subspan(10), 0, 6);
      a = request();
      request c = world.irecv(whole.first(10), 0, 5);  // the dropped one has released it
      b = request();
      c = request();
      request d = world.irecv(in[0], 0);
      request e = world.irecv(in[1], 0);
      co_await d;
      co_await e;
    }
  });
}
