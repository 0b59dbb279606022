// SPDX-License-Identifier: Apache-2.0
#include "coll/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

// The algorithm that the collective would choose.
algorithm chosen(pattern what, algorithm with, std::size_t bytes, int ranks) {
  if (ranks < 1 || bytes % sizeof(float) != 0)
    throw error(
        errc::invalid_argument,
        fmt::format("a forecast of {} bytes on {} ranks; give a multiple of 4, and 1 or more", bytes, ranks));
  coll::situation s;
  s.kind = kind_of(what);
  s.bytes = in_blocks(what) ? bytes * static_cast<std::size_t>(ranks) : bytes;
  s.ranks = ranks;
  s.separate_hosts = true;
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

// ---- formulas ----

class message_costs {
 public:
  explicit message_costs(const network& n) noexcept : net_(n) {}

  // Time of one message, from the call to its end at the receiver.
  double message(double bytes) const noexcept {
    const double one = frame(bytes);
    return bytes <= static_cast<double>(net_.eager_limit) ? one : one + 2 * frame(0);  // rts and cts
  }
  // Time between two messages of one sender.
  double interval(double bytes) const noexcept {
    const double through = static_cast<double>(net_.gap.count()) + wire(bytes);
    return std::max(static_cast<double>(net_.overhead.count()), through);
  }
  // Time of rounds with twice as many bytes each time.
  double doubling(double first, double all) const noexcept {
    double t = 0;
    for (double b = first; all > 0; b *= 2) {
      t += message(std::min(b, all));
      all -= std::min(b, all);
    }
    return t;
  }

 private:
  double wire(double bytes) const noexcept {
    const double per_byte = net_.bytes_per_second > 0 ? 1e9 / net_.bytes_per_second : 0;
    return (bytes + static_cast<double>(net_.header_bytes)) * per_byte;
  }
  double frame(double bytes) const noexcept {
    return 2 * static_cast<double>(net_.overhead.count()) + static_cast<double>(net_.latency.count()) +
           wire(bytes);
  }
  const network& net_;
};

struct estimate {
  double time = 0;
  double connections = 0;
};

// Negative: no formula. `b` is the number of bytes.
estimate steps_of(pattern what, algorithm with, double b, unsigned ranks, const message_costs& f) {
  const double n = ranks;
  const double log = std::bit_width(ranks - 1);
  // Messages of those beyond the power of two, before and after.
  const double extra = std::has_single_bit(ranks) ? 0 : 2;
  const double halves = f.doubling(b / n, b * (n - 1) / n);
  switch (with) {
    case algorithm::dissemination:
      return {log * f.message(0), std::min(n - 1, 2 * log)};
    case algorithm::binomial:
      return {log * f.message(b), log};
    case algorithm::recursive_doubling:
      return {(std::floor(std::log2(n)) + extra) * f.message(b), std::floor(std::log2(n)) + extra / 2};
    case algorithm::rabenseifner:
      return {2 * halves + extra * f.message(b), std::floor(std::log2(n)) + extra / 2};
    case algorithm::ring:
      if (what == pattern::all_reduce) return {2 * (n - 1) * f.message(b / n), std::min(n - 1, 2.0)};
      // The root collects the blocks one by one.
      if (what == pattern::reduce) return {n * f.message(b / n) + (n - 2) * f.interval(b / n), n - 1};
      if (!in_blocks(what)) return {-1, 0};
      return {(n - 1) * f.message(b), std::min(n - 1, 2.0)};
    case algorithm::direct:
      // Four messages are under way at a time; the results of an all_reduce go round.
      if (what == pattern::reduce_scatter)
        return steps_of(pattern::all_to_all, algorithm::pairwise, b, ranks, f);
      if (what != pattern::all_reduce) return {-1, 0};
      return {f.message(b / n) + (n - 2) * std::max(f.interval(b / n), n > 5 ? f.message(b / n) / 4 : 0) +
                  (n - 1) * f.message(b / n),
              n - 1};
    case algorithm::scatter_all_gather:
      // The root sends the blocks one by one, and they go round meanwhile.
      return {(n - 1) * (f.message(b / n) + f.interval(b / n)), n - 1};
    case algorithm::bruck:
      if (what == pattern::all_to_all) return {log * f.message(b * n / 2), std::min(n - 1, 2 * log)};
      return {f.doubling(b, b * (n - 1)), std::min(n - 1, 2 * log)};
    case algorithm::one_shot:
    case algorithm::pairwise: {
      const double in_flight = with == algorithm::one_shot ? 7 : 4;  // steps at a time
      const double waiting = n > in_flight + 1 ? f.message(b) / in_flight : 0;
      return {f.message(b) + (n - 2) * std::max(f.interval(b), waiting), n - 1};
    }
    default:
      return {-1, 0};
  }
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
  const algorithm used = chosen(what, with, bytes, ranks);
  forecast f;
  if (ranks == 1) return f;
  const estimate e =
      steps_of(what, used, static_cast<double>(bytes), static_cast<unsigned>(ranks), message_costs(n));
  if (e.time < 0)
    throw error(errc::not_supported, fmt::format("there is no formula for {} by {}; it can be simulated",
                                                 name_of(what), tutti::name_of(used)));
  f.time = duration(std::llround(e.time));
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
