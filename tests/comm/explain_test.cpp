// SPDX-License-Identifier: Apache-2.0
// tutti::explain: a program asks which ranks wait for which.
#include "support/contains.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <tutti/explain.hpp>
#include <tutti/trace.hpp>

using namespace tutti;
using namespace tutti::test;

namespace {

using tutti::test::contains;

}  // namespace

TEST_CASE("explain: pending operations of all ranks of this process, from any thread") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    run_local(2, over(transport), [](communicator world) -> task<> {
      int first = 0, second = 0;
      const int other = 1 - world.rank();
      request waiting = world.irecv(first, other, 5);
      co_await world.barrier();
      // Both receives are posted, according to the loop and to a read from another thread.
      std::string text = explain(world);
      TUTTI_EXPECT(contains(text, "in recv from rank 1, tag 5 on world, 4 bytes, at explain_test.cpp:"));
      TUTTI_EXPECT(contains(text, "in recv from rank 0, tag 5 on world, 4 bytes, at explain_test.cpp:"));
      TUTTI_EXPECT(contains(text, "a circle: rank 0 waits for 1"));
      std::thread reader([&] { text = explain(world); });
      reader.join();
      TUTTI_EXPECT(contains(text, "in recv from rank 1, tag 5 on world"));
      co_await world.barrier();
      co_await world.send(second, other, 5);
      co_await waiting;
      TUTTI_EXPECT(first == 0);
    });
  }
}

TEST_CASE("explain: on another thread while the runtime ends") {
  for (int i = 0; i < 20; ++i) {
    communicator world;
    auto all = std::make_unique<runtime>();
    all->run([](runtime* r, communicator* made) -> task<> { *made = co_await init(*r, alone()); }(all.get(),
                                                                                                  &world));
    std::atomic<int> texts = 0;
    std::atomic<bool> ended = false;
    std::thread reader([&texts, &ended, c = world] {
      do {
        const std::string text = explain(c);
        CHECK((text.empty() || contains(text, "rank")));
        ++texts;
      } while (!ended);
    });
    while (texts < 3) std::this_thread::yield();
    all.reset();
    ended = true;
    reader.join();
    CHECK(explain(world).empty());
  }
}

TEST_CASE("explain: a split's ranks are named as those of the world, and spans by their names") {
  run_local(3, over("shm"), [](communicator world) -> task<> {
    communicator pair = co_await world.split(world.rank() == 0 ? -1 : 0, world.rank());
    const trace_span span(world.rank() == 2 ? "last of all" : "others");
    int x = 0;
    request waiting;
    if (pair) waiting = pair.irecv(x, 1 - pair.rank(), 0);
    co_await world.barrier();
    const std::string text = explain(world);
    TUTTI_EXPECT(contains(text, "in recv from rank 2, tag 0 on "));
    TUTTI_EXPECT(contains(text, "in recv from rank 1, tag 0 on "));
    TUTTI_EXPECT(contains(text, "is in \"last of all\" for "));
    co_await world.barrier();
    if (pair) {
      int y = 1;
      co_await pair.send(y, 1 - pair.rank(), 0);
      co_await waiting;
    }
  });
}

TEST_CASE("explain: an empty communicator has no operations") { CHECK(explain(communicator()).empty()); }

TEST_CASE("explain: a span on a thread without a rank does nothing") {
  std::thread([] { const trace_span span("nobody's"); }).join();
}
