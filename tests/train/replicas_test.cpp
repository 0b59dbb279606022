// SPDX-License-Identifier: Apache-2.0
// Replicas are compared bit by bit, and differing ranks are named.
#include <tutti/train/replicas.hpp>

#include "support/local_world.hpp"

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <vector>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("replicas: the hash depends on every bit, and not on the division into pieces") {
  std::vector<float> values(37, 1.5F);
  const auto hash = [&] { return hash_of(std::as_bytes(std::span(values))); };
  std::set<std::uint64_t> seen{hash()};
  for (float& v : values) {
    auto* const bits = reinterpret_cast<unsigned char*>(&v);
    for (int bit = 0; bit < 32; ++bit) {
      bits[bit / 8] = static_cast<unsigned char>(bits[bit / 8] ^ (1 << bit % 8));
      seen.insert(hash());
      bits[bit / 8] = static_cast<unsigned char>(bits[bit / 8] ^ (1 << bit % 8));
    }
  }
  CHECK(seen.size() == 37 * 32 + 1);
  const std::array<float, 1> plus{0.0F}, minus{-0.0F};
  CHECK(hash_of(std::as_bytes(std::span(plus))) != hash_of(std::as_bytes(std::span(minus))));
}

TEST_CASE("replicas: every rank names the ranks that differ from the majority") {
  run_local(4, [](communicator world) -> task<> {
    std::vector<float> weights(100, 2.0F), more(3, 1.0F);
    const replica_check same = co_await compare_replicas(world, weights);
    TUTTI_EXPECT(same.agree());
    if (world.rank() == 2) more[1] = 1.0000001F;
    const std::vector<std::span<const float>> pieces{weights, more};
    const replica_check differ = co_await compare_replicas(world, pieces);
    TUTTI_EXPECT(!differ.agree() && differ.differ == std::vector<int>{2});
    weights[0] = static_cast<float>(world.rank() / 2);  // two against two: rank 0's side counts
    const replica_check halves = co_await compare_replicas(world, weights);
    TUTTI_EXPECT((halves.differ == std::vector<int>{2, 3}));
  });
}
