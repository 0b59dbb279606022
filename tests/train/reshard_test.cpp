// SPDX-License-Identifier: Apache-2.0
// Every element of every layout, compared with where its index says that it belongs.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <tutti/train/reshard.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

// What a rank has in this layout if each element of the whole tensor is its own index.
std::vector<float> contents(const layout& l, int rank) {
  std::array<std::size_t, 3> block{};
  for (std::size_t d = 0; d < 3; ++d) {
    const auto parts = static_cast<std::size_t>(l.shape[d].parts);
    block[d] = l.shape[d].block > 0 ? l.shape[d].block
                                    : std::max<std::size_t>(1, (l.shape[d].size + parts - 1) / parts);
  }
  std::vector<float> mine;
  float index = 0;
  for (std::size_t i = 0; i < l.shape[0].size; ++i)
    for (std::size_t j = 0; j < l.shape[1].size; ++j)
      for (std::size_t k = 0; k < l.shape[2].size; ++k, ++index) {
        int owner = 0;
        const std::array<std::size_t, 3> at = {i, j, k};
        for (std::size_t d = 0; d < 3; ++d)
          owner = owner * l.shape[d].parts +
                  static_cast<int>(at[d] / block[d] % static_cast<std::size_t>(l.shape[d].parts));
        if (l.first_rank + owner == rank) mine.push_back(index);
      }
  return mine;
}

layout any_layout(std::mt19937& random, const std::array<std::size_t, 3>& sizes, int ranks) {
  const auto up_to = [&random](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  layout l;
  int left = ranks;
  for (std::size_t d = 0; d < 3; ++d) {
    l.shape[d] = {sizes[d], 1 + up_to(left - 1), static_cast<std::size_t>(up_to(3))};
    left /= l.shape[d].parts;
  }
  l.first_rank = up_to(ranks - l.ranks());
  return l;
}

task<> moves(communicator c, layout from, layout to) {
  const reshard_plan plan(from, to, c.rank());
  const std::vector<float> mine = contents(from, c.rank()), wanted = contents(to, c.rank());
  TUTTI_EXPECT(mine.size() == from.elements(c.rank()));
  TUTTI_EXPECT(wanted.size() == to.elements(c.rank()));
  std::vector<float> got(wanted.size(), -1);
  for (int again = 0; again < 2; ++again) {
    std::ranges::fill(got, -1.0F);
    co_await plan.move(c, mine, got);
    TUTTI_EXPECT(got == wanted);
  }
  // Nothing moves that is there already.
  std::size_t sent = 0;
  for (const reshard_plan::slice& s : plan.outgoing()) sent += s.elements();
  std::size_t stays = 0;
  for (const float x : mine) stays += std::ranges::binary_search(wanted, x) ? 1 : 0;
  TUTTI_EXPECT(sent + stays == mine.size());
}

task<> wrong_buffer(communicator c, layout both) {
  const reshard_plan plan(both, both, c.rank());
  std::vector<float> in(5), out(6);
  std::string said;
  try {
    co_await plan.move(c, in, out);
  } catch (const error& e) {
    said = e.what();
  }
  TUTTI_EXPECT(
      said.find("5 elements in the first layout and 5 in the second, but its buffers have 5 and 6") !=
      said.npos);
}

}  // namespace

TEST_CASE("reshard: any layout becomes any other, on overlapping and on separate ranks") {
  std::mt19937 random(7);
  for (const int ranks : {1, 2, 6}) {
    for (int round = 0; round < 20; ++round) {
      const auto size = [&random] { return std::uniform_int_distribution<std::size_t>(1, 9)(random); };
      const std::array<std::size_t, 3> sizes = {size(), size(), size()};
      const layout from = any_layout(random, sizes, ranks), to = any_layout(random, sizes, ranks);
      CAPTURE(ranks);
      CAPTURE(round);
      CHECK_NOTHROW(run_local(ranks, over("shm"),
                              [&](communicator world) { return moves(std::move(world), from, to); }));
    }
  }
}

TEST_CASE("reshard: ranks whose slices come from many others at unequal distances do not wait in a circle") {
  const layout pieces{.shape = {{{}, {.size = 22, .parts = 4}, {.size = 9, .parts = 3}}}};
  const layout dealt{
      .shape = {{{}, {.size = 22, .parts = 8, .block = 1}, {.size = 9, .parts = 2, .block = 1}}}};
  CHECK_NOTHROW(
      run_local(16, over("shm"), [&](communicator world) { return moves(std::move(world), pieces, dealt); }));
}

TEST_CASE("reshard: from four trainers by rows to two servers by columns, over TCP") {
  const layout trainers{.shape = {{{.size = 301, .parts = 4}, {.size = 97}, {}}}};
  const layout servers{.shape = {{{.size = 301}, {.size = 97, .parts = 2}, {}}}, .first_rank = 4};
  CHECK_NOTHROW(run_local(6, over("tcp"),
                          [&](communicator world) { return moves(std::move(world), trainers, servers); }));
}

TEST_CASE("reshard: layouts and buffers that do not fit are refused") {
  const layout two{.shape = {{{.size = 10, .parts = 2}, {}, {}}}};
  const layout other{.shape = {{{.size = 11, .parts = 2}, {}, {}}}};
  const layout none{.shape = {{{.size = 10, .parts = 0}, {}, {}}}};
  CHECK_THROWS_WITH(reshard_plan(two, other, 0), doctest::Contains("10 elements in one layout and 11"));
  CHECK_THROWS_WITH(reshard_plan(two, none, 0), doctest::Contains("0 parts"));
  CHECK_NOTHROW(
      run_local(2, over("shm"), [&two](communicator world) { return wrong_buffer(std::move(world), two); }));
}
