// SPDX-License-Identifier: Apache-2.0
// broadcast: from every root, with sizes for every protocol.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

task<> from_every_root(communicator world) {
  for (const std::size_t bytes : {0, 1, 33, 4097, 70'001, (1 << 20) + 5}) {
    for (int root = 0; root < world.size(); ++root) {
      const std::vector<std::byte> wanted = filled(bytes, bytes + static_cast<std::size_t>(root));
      std::vector<std::byte> data(bytes);
      if (world.rank() == root) data = wanted;
      co_await world.broadcast(data, root);
      TUTTI_EXPECT(data == wanted);
    }
  }
}

struct settings {
  double rate;
  char name[20];
};

task<> one_object(communicator world) {
  settings s{};
  if (world.rank() == 0) s = settings{0.5, "rate"};
  co_await world.broadcast(s, 0);
  TUTTI_EXPECT(s.rate == 0.5);
  TUTTI_EXPECT(std::string(s.name) == "rate");
}

// The root finishes long before the others begin.
task<> many_in_flight(communicator world) {
  constexpr std::size_t each = 200;
  std::vector<std::vector<int>> data(each);
  std::vector<request> requests;
  for (std::size_t i = 0; i < each; ++i) {
    const int root = static_cast<int>(i) % world.size();
    data[i].assign(i * 20, world.rank() == root ? static_cast<int>(i) : -1);
    requests.push_back(start(world.broadcast(data[i], root)));
  }
  for (request& r : requests) co_await r;
  for (std::size_t i = 0; i < each; ++i)
    for (const int x : data[i]) TUTTI_EXPECT(x == static_cast<int>(i));
}

template <class F>
void on_all(F main) {
  for (const std::string& transport : transports) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      CAPTURE(transport);
      CAPTURE(ranks);
      CHECK_NOTHROW(run_local(ranks, over(transport), main));
    }
  }
}

}  // namespace

TEST_CASE("broadcast: from every root") { on_all(from_every_root); }
TEST_CASE("broadcast: one object") { on_all(one_object); }
TEST_CASE("broadcast: many in flight, from different roots") { on_all(many_in_flight); }
