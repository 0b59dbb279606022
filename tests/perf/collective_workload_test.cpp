// SPDX-License-Identifier: Apache-2.0
// These checks decide the value of the check column.
#include "common/collective_workload.hpp"

#include <doctest/doctest.h>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace {

constexpr int ranks = 4;

template <class Workload>
std::vector<Workload> one_for_each_rank(std::size_t bytes, std::uint64_t seed) {
  std::vector<Workload> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(bytes, r, ranks);
  for (Workload& w : all) w.prepare(seed);
  return all;
}

void deliver(std::span<const std::byte> from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

TEST_CASE("broadcast: a missing and a damaged message are faults") {
  perf::broadcast_message root(100, 0), leaf(100, 1);
  root.prepare(1);
  leaf.prepare(1);
  leaf.sample();
  CHECK(leaf.faults() == 1);
  deliver(root.data(), leaf.data());
  leaf.sample();
  leaf.check();
  root.check();
  CHECK(leaf.faults() == 1);
  CHECK(root.faults() == 0);
  leaf.data()[3] ^= std::byte{1};
  leaf.check();
  CHECK(leaf.faults() == 2);
}

TEST_CASE("all_gather: blocks in their places are right, exchanged ones are faults") {
  auto all = one_for_each_rank<perf::gathered_blocks>(4000, 9);
  for (auto& to : all)
    for (std::size_t r = 0; r < ranks; ++r) deliver(all[r].in(), to.out().subspan(1000 * r, 1000));
  for (auto& w : all) {
    w.sample();
    w.check();
    CHECK(w.faults() == 0);
  }
  deliver(all[0].in(), all[2].out().subspan(1000, 1000));
  all[2].check();
  CHECK(all[2].faults() == 1);
}

TEST_CASE("all_to_all: block j of rank i is right only as block i of rank j") {
  auto all = one_for_each_rank<perf::exchanged_blocks>(4000, 9);
  for (std::size_t i = 0; i < ranks; ++i)
    for (std::size_t j = 0; j < ranks; ++j)
      deliver(all[i].in().subspan(1000 * j, 1000), all[j].out().subspan(1000 * i, 1000));
  for (auto& w : all) {
    w.sample();
    w.check();
    CHECK(w.faults() == 0);
  }
  deliver(all[0].in().first(1000), all[1].out().first(1000));
  all[1].check();
  CHECK(all[1].faults() == 1);
}

TEST_CASE("reduce_scatter: each block of the sum is right only at its rank") {
  auto all = one_for_each_rank<perf::scattered_sum>(4000, 0xffff'fff0);  // seeds wrap around
  std::vector<float> sum(1000, 0.0f);
  for (auto& w : all)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += w.in()[i];
  for (std::size_t r = 0; r < ranks; ++r) {
    auto& w = all[r];
    std::memcpy(w.out().data(), sum.data() + 250 * r, 250 * sizeof(float));
    w.sample();
    w.check();
    CHECK(w.faults() == 0);
    w.out()[7] += 1;
    w.check();
    CHECK(w.faults() == 1);
  }
}

TEST_CASE("barrier: leaving before all have entered is a fault, if the ranks share a clock") {
  perf::barrier_times times;
  perf::maxima all{};
  all[perf::max_entered] = 2;
  all[perf::max_minus_left] = -3;  // the first left at 3
  times.judge(all);
  CHECK(times.faults() == 0);
  all[perf::max_minus_left] = -1;
  times.judge(all);
  CHECK(times.faults() == 1);
  all[perf::max_host] = 5;  // and another host -4: different clocks
  all[perf::max_minus_host] = -4;
  times.judge(all);
  CHECK(times.faults() == 1);
  times.prepare(1);
  times.enter();
  times.leave();
  perf::maxima own{};
  times.tell(own);
  CHECK(own[perf::max_entered] <= -own[perf::max_minus_left]);
  CHECK(own[perf::max_host] == -own[perf::max_minus_host]);
}
