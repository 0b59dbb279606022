// SPDX-License-Identifier: Apache-2.0
#include "coll/choice.hpp"
#include "coll/cost.hpp"
#include "sim/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tutti/sim/forecast.hpp>
#include <tutti/sleep.hpp>
#include <vector>

namespace tutti::sim {
namespace {

coll::operation_kind kind_of(pattern p) noexcept {
  using enum tutti::detail::operation_kind;
  constexpr coll::operation_kind kinds[] = {barrier,    broadcast,      reduce,    all_reduce,
                                            all_gather, reduce_scatter, all_to_all};
  return kinds[static_cast<std::size_t>(p)];
}

bool in_blocks(pattern p) noexcept { return p >= pattern::all_gather; }

// Of a rank's whole vector; of blocks, of the largest buffer.
std::size_t all_bytes(pattern what, std::size_t bytes, int ranks) noexcept {
  return in_blocks(what) ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

// The algorithm that the collective would choose.
algorithm chosen(pattern what, algorithm with, std::size_t bytes, int ranks) {
  if (ranks < 1 || bytes % sizeof(float) != 0)
    throw error(
        errc::invalid_argument,
        fmt::format("a forecast of {} bytes on {} ranks; give a multiple of 4, and 1 or more", bytes, ranks));
  coll::situation s;
  s.kind = kind_of(what);
  s.bytes = all_bytes(what, bytes, ranks);
  s.ranks = ranks;
  return coll::choose(s, with);
}

struct attempt {
  pattern what;
  algorithm with;
  std::size_t bytes;
  duration begun{0};
  duration ended{0};
};

operation<> collective(const communicator& world, pattern what, std::vector<float>& in,
                       std::vector<float>& out) {
  switch (what) {
    case pattern::barrier:
      return world.barrier();
    case pattern::broadcast:
      return world.broadcast(in, 0);
    case pattern::reduce:
      return world.reduce(in, out, sum, 0);
    case pattern::all_reduce:
      return world.all_reduce(in, sum);
    case pattern::all_gather:
      return world.all_gather(in, out);
    case pattern::reduce_scatter:
      return world.reduce_scatter(in, out, sum);
    case pattern::all_to_all:
      break;
  }
  return world.all_to_all(in, out);
}

task<> measure(communicator world, attempt* a) {
  const std::size_t block = a->bytes / sizeof(float);
  const std::size_t all = block * static_cast<std::size_t>(world.size());
  const bool many_in = a->what == pattern::reduce_scatter || a->what == pattern::all_to_all;
  const bool many_out = a->what == pattern::all_gather || a->what == pattern::all_to_all;
  std::vector<float> in(many_in ? all : block);
  std::vector<float> out(many_out ? all : block);
  co_await collective(world, a->what, in, out).with(a->with);  // makes the connections
  const auto begin = std::chrono::ceil<std::chrono::hours>(now().time_since_epoch());
  co_await sleep_for(begin - now().time_since_epoch());
  a->begun = begin;
  co_await collective(world, a->what, in, out).with(a->with);
  a->ended = std::max<duration>(a->ended, now().time_since_epoch());
}

// Copies inside a rank cost nothing, as in the simulator.
coll::link_costs costs_of(const network& n) noexcept {
  const double byte = n.bytes_per_second > 0 ? 1e9 / n.bytes_per_second : 0;
  return {static_cast<double>(n.latency.count()),
          static_cast<double>(n.overhead.count()),
          static_cast<double>(n.gap.count()),
          byte,
          0,
          static_cast<double>(n.header_bytes),
          static_cast<double>(n.eager_limit)};
}

}  // namespace

const char* name_of(pattern p) noexcept { return coll::name_of(kind_of(p)); }

forecast simulate(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n) {
  attempt a{what, chosen(what, with, bytes, ranks), bytes};
  options o;
  o.ranks = ranks;
  o.seed = 1;
  o.network = n;
  o.timeout = std::chrono::hours(10);
  const report r = run(o, [&a](communicator world) { return measure(std::move(world), &a); });
  if (!r.all_returned()) throw error(errc::invalid_argument, "a forecast by simulation failed\n" + r.text());
  forecast f;
  f.simulated = true;
  f.time = a.ended - a.begun;
  for (const rank_report& one : r.ranks) f.connections = std::max(f.connections, one.connections);
  const std::size_t blocks = in_blocks(what) ? static_cast<std::size_t>(ranks) : 1;
  const std::size_t own = bytes + bytes * (what == pattern::all_to_all ? 2 * blocks - 1 : blocks);
  f.bytes_per_rank = r.bytes_per_rank > own ? r.bytes_per_rank - own : 0;
  return f;
}

forecast compute_forecast(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n) {
  options o;
  o.network = n;
  check(o);
  const algorithm used = chosen(what, with, bytes, ranks);
  forecast f;
  if (ranks == 1) return f;
  const coll::cost e = coll::cost_of(kind_of(what), used, static_cast<double>(all_bytes(what, bytes, ranks)),
                                     ranks, costs_of(n));
  if (e.time < 0)
    throw error(errc::not_supported, fmt::format("there is no formula for {} by {}; it can be simulated",
                                                 name_of(what), tutti::name_of(used)));
  f.time = duration(std::llround(std::min(e.time, static_cast<double>(never.count() / 2))));
  f.connections = static_cast<int>(e.connections);
  return f;
}

forecast predict(pattern what, algorithm with, std::size_t bytes, int ranks, const network& n,
                 int most_simulated) {
  if (ranks <= most_simulated) return simulate(what, with, bytes, ranks, n);
  forecast f = compute_forecast(what, with, bytes, ranks, n);
  // What a rank keeps of every other grows with their number; the rest does not.
  const std::size_t small = simulate(pattern::barrier, algorithm::dissemination, 0, 16, n).bytes_per_rank;
  const std::size_t large = simulate(pattern::barrier, algorithm::dissemination, 0, 32, n).bytes_per_rank;
  if (large > small) f.bytes_per_rank = large + (large - small) / 16 * static_cast<std::size_t>(ranks - 32);
  return f;
}

}  // namespace tutti::sim
