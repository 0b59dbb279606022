// SPDX-License-Identifier: Apache-2.0
// What a seed draws: how a network varies, and what fails in it.
#include "sim/random_numbers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tutti/sim/simulation.hpp>
#include <utility>

namespace tutti::sim {

noise random_noise(std::uint64_t seed) {
  random_numbers numbers(scrambled(seed + 11));
  noise n;
  n.shuffle = true;
  constexpr std::int64_t measures[] = {0, 1'000, 20'000, 1'000'000};
  const auto measure = [&] { return duration(measures[numbers.below(std::size(measures))]); };
  n.start = measure();
  n.jitter = measure();
  n.split = numbers.happens(0.5) ? numbers.share() : 0;
  n.busy = numbers.happens(0.5) ? numbers.share() / 2 : 0;
  n.unstoppable = numbers.happens(0.5) ? numbers.share() : 0;
  if (numbers.happens(0.3)) {
    n.stragglers = 0.05;
    n.straggling = duration(5'000'000);
  }
  return n;
}

faults faults::random(std::uint64_t seed, int ranks, duration within) {
  random_numbers numbers(scrambled(seed + 12));
  faults f;
  const auto all = static_cast<std::uint64_t>(ranks);
  const auto one = [&] { return static_cast<int>(numbers.below(all)); };
  const auto moment = [&] { return duration(numbers.up_to(within.count())); };
  const auto pair = [&] {
    const int a = one();
    return std::pair(a, static_cast<int>((static_cast<std::uint64_t>(a) + 1 + numbers.below(all - 1)) % all));
  };
  if (numbers.happens(0.6) && ranks > 1) {
    // A few different ones, not all.
    std::vector<int> ranks_left;
    for (int r = 0; r < ranks; ++r) ranks_left.push_back(r);
    const std::uint64_t deaths = numbers.happens(0.7) ? 1 : 1 + numbers.below(all - 1);
    for (std::uint64_t i = 0; i < deaths; ++i) {
      const std::size_t which = numbers.below(ranks_left.size());
      death d;
      d.rank = ranks_left[which];
      ranks_left.erase(ranks_left.begin() + static_cast<std::ptrdiff_t>(which));
      // Mostly during a send, early or late.
      if (numbers.happens(0.7)) {
        d.frames = 1 + numbers.below(std::uint64_t{1} << numbers.below(9));
      } else {
        d.at = moment();
      }
      f.deaths.push_back(d);
    }
  }
  if (numbers.happens(0.2) && ranks > 1) {
    const auto [a, b] = pair();
    f.disconnections.push_back({a, b, moment(), numbers.happens(0.5)});
  }
  if (numbers.happens(0.15) && ranks > 1) {
    partition p;
    for (int r = 0; r < ranks; ++r)
      if (numbers.happens(0.5)) p.ranks.push_back(r);
    p.from = moment();
    // Some heal before a rank gives up, some after, some never.
    const std::uint64_t dice = numbers.below(3);
    if (dice == 0) p.until = p.from + moment();
    if (dice == 1) p.until = p.from + std::chrono::seconds(5);
    f.partitions.push_back(p);
  }
  if (numbers.happens(0.15)) {
    const int rank = one();
    const duration from = moment();
    f.stalls.push_back(
        {rank, from, from + (numbers.happens(0.5) ? moment() : duration(std::chrono::milliseconds(700)))});
  }
  if (numbers.happens(0.3))
    f.skews.push_back({one(), duration(numbers.up_to(3'600'000'000'000)), 400 * numbers.share() - 200});
  if (numbers.happens(0.15) && ranks > 1) {
    const auto [from, to] = pair();
    f.corruptions.push_back({from, to, 1 + numbers.below(std::uint64_t{1} << numbers.below(6))});
  }
  return f;
}

bool faults::none() const noexcept {
  return deaths.empty() && disconnections.empty() && partitions.empty() && stalls.empty() && skews.empty() &&
         corruptions.empty();
}

std::string faults::text() const {
  std::string text;
  const auto say = [&text](const std::string& one) { text += (text.empty() ? "" : "; ") + one; };
  const auto us = [](duration d) { return static_cast<double>(d.count()) / 1000; };
  for (const death& d : deaths)
    say(d.frames > 0 ? fmt::format("rank {} dies at its frame {}", d.rank, d.frames)
                     : fmt::format("rank {} dies at {} us", d.rank, us(d.at)));
  for (const disconnection& d : disconnections)
    say(fmt::format("{} and {} are disconnected at {} us{}", d.a, d.b, us(d.at),
                    d.loses ? ", with losses" : ""));
  for (const partition& p : partitions)
    say(fmt::format("ranks {} are cut off from {} us {}", fmt::join(p.ranks, ","), us(p.from),
                    p.until == never ? std::string("on") : fmt::format("to {} us", us(p.until))));
  for (const stall& s : stalls)
    say(fmt::format("rank {} stands still from {} to {} us", s.rank, us(s.from), us(s.until)));
  for (const skew& s : skews)
    say(fmt::format("the clock of rank {} is {} us ahead and gains {} ppm", s.rank, us(s.ahead),
                    s.drift_ppm));
  for (const corruption& c : corruptions)
    say(fmt::format("frame {} from {} to {} is corrupted", c.frame, c.from, c.to));
  return text.empty() ? "nothing fails" : text;
}

}  // namespace tutti::sim
