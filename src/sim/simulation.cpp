// SPDX-License-Identifier: Apache-2.0
// All ranks of a simulation, and the loop that gives each its turns; one scenario under many seeds.
#include "base/env.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "bootstrap/environment.hpp"
#include "comm/runtime_state.hpp"
#include "flight/explanation.hpp"
#include "flight/recorder.hpp"
#include "sim/fabric.hpp"
#include "transport/transport.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tutti/detail/deadline.hpp>
#include <utility>
#include <vector>

namespace tutti::sim {
namespace {

// What a rank may do without advancing the time; after it a microsecond has passed.
constexpr int rounds_at_once = 256;
constexpr nanoseconds busy_step = 1000;
// No rank goes on from here. What is added to it does not overflow.
constexpr nanoseconds for_ever = end_of_time / 2;
// Clocks that differ by no more show times that can be added up, and always go forward.
constexpr duration furthest_ahead = std::chrono::hours(24 * 180);
constexpr double most_drift_ppm = 500'000;
// Longer timeouts count as this, which the clock can add up.
constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365 * 30);

std::size_t heap_in_use() noexcept {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

core::world_info world_for(const options& o, int rank, std::uint64_t id) {
  core::world_info info;
  info.id = id;
  info.rank = rank;
  info.size = o.ranks;
  info.timeout = std::min(o.timeout, longest_timeout);
  const int full = o.ranks / o.ranks_per_host, rest = o.ranks % o.ranks_per_host;
  std::vector<core::host_map::run> hosts;
  if (full > 0) hosts.push_back({0, 1, full, o.ranks_per_host});
  if (rest > 0) hosts.push_back({full, 0, 1, rest});
  info.hosts = core::host_map(std::move(hosts), o.ranks);
  // A rank of a larger world gets the others' records when it connects.
  const bool all = o.ranks <= bootstrap::most_records_at_once;
  const int first = all ? 0 : rank - rank % o.ranks_per_host;
  for (int r = first; r < std::min(o.ranks, all ? o.ranks : first + o.ranks_per_host); ++r)
    info.peers.learn(record_of(o, r));
  return info;
}

// A rank's clock, and its randomness.
class rank_platform final : public core::platform {
 public:
  rank_platform(fabric& f, int rank)
      : fabric_(f), numbers_(scrambled(f.settings().seed * 0x10001 + static_cast<std::uint64_t>(rank) + 3)) {
    for (const skew& s : f.settings().faults.skews) {
      if (s.rank != rank) continue;
      ahead_ += s.ahead.count();
      drift_ += s.drift_ppm * 1e-6;
    }
  }
  core::time_point now() noexcept override { return local(fabric_.now()); }
  std::uint64_t random() noexcept override { return numbers_.next(); }
  // The first moment of the simulation at which this clock shows `t` or more.
  nanoseconds moment_of(core::time_point t) const noexcept {
    if (t == core::time_point::max()) return end_of_time;
    const nanoseconds wanted =
        std::chrono::duration_cast<std::chrono::nanoseconds>(t - beginning).count() - ahead_;
    if (drift_ == 0) return wanted;
    auto guess = static_cast<nanoseconds>(static_cast<double>(wanted) / (1 + drift_));
    while (local(guess) < t) ++guess;
    return guess;
  }

 private:
  // Long after the clock's zero, which has a meaning of its own.
  static constexpr core::time_point beginning{std::chrono::hours(24 * 365)};
  core::time_point local(nanoseconds t) const noexcept {
    return beginning +
           std::chrono::nanoseconds(t + ahead_ + static_cast<nanoseconds>(static_cast<double>(t) * drift_));
  }
  fabric& fabric_;
  random_numbers numbers_;
  nanoseconds ahead_ = 0;
  double drift_ = 0;
};

struct member {
  member(fabric& f, int r) : rank(r), platform(f, r), runtime(context, platform) {
    runtime.loop().set_stepped();
  }
  const int rank;
  boost::asio::io_context context{1};
  rank_platform platform;
  comm::runtime_state runtime;
};

// `world` is destroyed with the frame, after main's exception has been seen. Were main's handles the only
// ones, a rank whose main throws would leave like one that has finished.
task<> main_of(tutti::detail::any_main* main, communicator world, int* code) {
  *code = co_await (*main)(world);
}

class simulation {
 public:
  simulation(const options& o, tutti::detail::any_main& main)
      : options_(o),
        main_(main),
        fabric_(o, [this](int rank) { step(rank); }),
        memory_before_(heap_in_use()) {
    random_numbers numbers(scrambled(o.seed + 4));
    const std::uint64_t id = numbers.next();
    for (int r = 0; r < o.ranks; ++r) {
      members_.push_back(std::make_unique<member>(fabric_, r));
      member& m = *members_.back();
      m.runtime.loop().bind_to_this_thread();
      std::vector<std::unique_ptr<transport::transport>> ways;
      ways.push_back(transport::make_self_transport(m.runtime.loop()));
      ways.push_back(std::make_unique<sim_transport>(fabric_, m.runtime.loop(), r));
      m.runtime.loop().recorder().joining(r, o.ranks);
      communicator world = m.runtime.enter(world_for(o, r, id), std::move(ways), nullptr);
      m.runtime.start(main_of(&main_, std::move(world), &so_far(m).code));
      fabric_.want_step(r, numbers.up_to(o.noise.start.count()));
    }
    running_ = members_.size();
    const auto plan = [this](duration when, std::function<void()> what) {
      if (when != never) fabric_.plan(when.count(), std::move(what));
    };
    for (const death& d : o.faults.deaths)
      if (d.frames == 0) plan(d.at, [this, &d] { kill(d.rank); });
    for (const disconnection& d : o.faults.disconnections) plan(d.at, [this, &d] { fabric_.disconnect(d); });
    for (const partition& p : o.faults.partitions)
      if (p.until == never || p.until - p.from > o.network.silence)
        plan(p.from + std::min(o.network.silence, never - p.from), [this, &p] { fabric_.give_up(p); });
    for (const stall& s : o.faults.stalls)
      plan(s.from, [this, &s] {
        nanoseconds& cpu_free = fabric_.at(s.rank).cpu_free;
        cpu_free = std::max(cpu_free, std::min(for_ever, nanoseconds{s.until.count()}));
      });
  }
  ~simulation() {
    for (const auto& m : members_) {
      m->runtime.loop().bind_to_this_thread();
      m->runtime.stop();
    }
    for (const auto& m : members_) {
      m->runtime.loop().bind_to_this_thread();
      for (const auto& w : m->runtime.worlds()) w->cut();
    }
    members_.clear();
    base::set_log_rank(-1);
  }

  report run() {
    event_queue& events = fabric_.events();
    while (running_ > 0) {
      if (events.empty()) {
        if (!wait_for_real_time()) break;
        continue;
      }
      const auto next = events.extract(events.begin());
      const nanoseconds when = next.key().first;
      if (when > options_.limit.count() || when >= for_ever) break;
      fabric_.set_now(std::max(fabric_.now(), when));
      ++result_.events;
      next.mapped()();
    }
    measure_memory();
    return conclude();
  }

 private:
  void step(int rank) {
    member& m = *members_[static_cast<std::size_t>(rank)];
    port& p = fabric_.at(rank);
    if (!goes_on(m)) return;
    core::loop& loop = m.runtime.loop();
    loop.bind_to_this_thread();
    base::set_log_rank(m.rank);
    int rounds = 0;
    for (bool any = true; any && !p.dying && rounds < rounds_at_once; ++rounds) {
      any = loop.step();
      m.context.restart();
      any |= m.context.poll() > 0;
    }
    if (p.dying) {
      so_far(m).how = ending::killed;
      --running_;
      fabric_.bury(m.rank);
      return;
    }
    if (m.runtime.at_end()) {
      measure_memory();
      so_far(m).how = m.runtime.failure() ? ending::threw : ending::returned;
      so_far(m).ended = duration(fabric_.now());
      --running_;
      return;
    }
    const bool busy = rounds == rounds_at_once;
    const nanoseconds soonest = fabric_.now() + (busy ? busy_step : 0);
    if (busy) fabric_.want_step(m.rank, soonest);
    const nanoseconds next = m.platform.moment_of(loop.engine().timers().next());
    if (next != end_of_time) fabric_.want_step(m.rank, std::max(next, soonest));
  }
  void kill(int rank) {
    if (!goes_on(*members_[static_cast<std::size_t>(rank)])) return;
    fabric_.at(rank).dying = true;
    step(rank);
  }

  // For Asio's own timers and sockets; returns whether anything happened.
  bool wait_for_real_time() {
    const auto until = tutti::detail::after(std::chrono::steady_clock::now(), options_.patience);
    for (;;) {
      bool any = false;
      for (const auto& m : members_) {
        if (!goes_on(*m)) continue;
        m->runtime.loop().bind_to_this_thread();
        m->context.restart();
        if (m->context.poll() > 0) {
          fabric_.want_step(m->rank, fabric_.now());
          return true;
        }
        any |= !m->context.stopped();
      }
      if (!any || std::chrono::steady_clock::now() >= until) return false;
      result_.repeatable = false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  report conclude() {
    report& r = result_;
    r.seed = options_.seed;
    r.hash = fabric_.hash().value();
    std::vector<flight::rank_snapshot> ranks;
    for (std::size_t i = 0; running_ > 0 && i < members_.size(); ++i) {  // some are stuck
      core::loop& loop = members_[i]->runtime.loop();
      loop.bind_to_this_thread();
      ranks.push_back(flight::read(loop.recorder().memory(), 0));
    }
    const std::vector<std::string> pending = flight::pending_operations(ranks);
    for (const auto& m : members_) {
      rank_report one = so_far(*m);
      if (one.how == ending::stuck) {
        one.text = pending[static_cast<std::size_t>(m->rank)];
        if (one.text.empty()) one.text = "nothing of tutti's: a channel, or something of the program's own";
      } else if (one.how == ending::threw) {
        one.failure = m->runtime.failure();
        core::thrown why = core::what_of(one.failure);
        one.reason = why.code;
        one.text = std::move(why.text);
      }
      r.time = std::max(r.time, one.ended);
      r.frames += one.frames;
      r.bytes += one.bytes;
      r.ranks.push_back(std::move(one));
    }
    return std::move(r);
  }

  void measure_memory() noexcept {
    const std::size_t now = heap_in_use();
    if (result_.bytes_per_rank == 0 && now > memory_before_)
      result_.bytes_per_rank = (now - memory_before_) / members_.size();
  }
  rank_report& so_far(const member& m) noexcept { return fabric_.at(m.rank).so_far; }
  bool goes_on(const member& m) noexcept { return so_far(m).how == ending::stuck; }

  const options& options_;
  tutti::detail::any_main& main_;
  fabric fabric_;
  std::vector<std::unique_ptr<member>> members_;
  std::size_t running_ = 0;  // neither ended nor dead
  std::size_t memory_before_ = 0;
  report result_;
};

const char* const variable = "TUTTI_SIM_SEED";

std::optional<std::uint64_t> wanted_seed() {
  return base::env_integer(variable, 0, std::numeric_limits<std::int64_t>::max());
}

}  // namespace

void check(const options& o) {
  const auto require = [](bool good, const char* option, const auto& value, const char* cure) {
    if (!good)
      throw error(errc::invalid_argument, fmt::format("sim::options::{} is {}: {}", option, value, cure));
  };
  const auto count = [&](int n, const char* option) { require(n >= 1, option, n, "give 1 or more"); };
  const auto in_ns = [](duration d) { return fmt::format("{} ns", d.count()); };
  const auto time = [&](duration t, const char* option) {
    require(t >= t.zero(), option, in_ns(t), "give zero or more");
  };
  const auto cost = [&](duration t, const char* option) {
    require(t >= t.zero() && t <= std::chrono::hours(24 * 365), option, in_ns(t),
            "give zero or more, and not more than a year");
  };
  const auto rate = [&](double r, const char* option) {
    require(r == 0 || r >= 1, option, r, "give 1 or more, or 0 for a rate without limit");
  };
  const auto share = [&](double s, const char* option) {
    require(s >= 0 && s <= 1, option, s, "give a share from 0 to 1");
  };
  const auto rank = [&](int r, const char* option) {
    require(r >= 0 && r < o.ranks, option, r, "give a rank of the simulation");
  };
  count(o.ranks, "ranks");
  count(o.ranks_per_host, "ranks_per_host");
  require(o.timeout.count() > 0, "timeout", base::duration_text(o.timeout), "give a positive one");
  time(o.limit, "limit");
  require(o.patience.count() >= 0, "patience", base::duration_text(o.patience), "give zero or more");

  const network& n = o.network;
  cost(n.latency, "network.latency");
  cost(n.overhead, "network.overhead");
  cost(n.gap, "network.gap");
  rate(n.bytes_per_second, "network.bytes_per_second");
  cost(n.local_latency, "network.local_latency");
  rate(n.local_bytes_per_second, "network.local_bytes_per_second");
  cost(n.connecting, "network.connecting");
  time(n.silence, "network.silence");
  require(n.slice >= 1, "network.slice", n.slice, "give 1 byte or more");

  cost(o.noise.start, "noise.start");
  cost(o.noise.jitter, "noise.jitter");
  share(o.noise.stragglers, "noise.stragglers");
  cost(o.noise.straggling, "noise.straggling");
  share(o.noise.split, "noise.split");
  share(o.noise.busy, "noise.busy");
  share(o.noise.unstoppable, "noise.unstoppable");

  for (const death& d : o.faults.deaths) {
    rank(d.rank, "faults.deaths.rank");
    time(d.at, "faults.deaths.at");
  }
  for (const disconnection& d : o.faults.disconnections) {
    rank(d.a, "faults.disconnections.a");
    rank(d.b, "faults.disconnections.b");
    time(d.at, "faults.disconnections.at");
  }
  for (const partition& p : o.faults.partitions) {
    for (const int r : p.ranks) rank(r, "faults.partitions.ranks");
    time(p.from, "faults.partitions.from");
    require(p.until >= p.from, "faults.partitions.until", in_ns(p.until), "give `from` or later");
  }
  for (const stall& s : o.faults.stalls) {
    rank(s.rank, "faults.stalls.rank");
    time(s.from, "faults.stalls.from");
    require(s.until >= s.from, "faults.stalls.until", in_ns(s.until), "give `from` or later");
  }
  std::map<int, std::pair<double, double>> clocks;  // by rank: what its skews add up to
  for (const skew& s : o.faults.skews) {
    rank(s.rank, "faults.skews.rank");
    auto& [ahead, drift_ppm] = clocks[s.rank];
    ahead += static_cast<double>(s.ahead.count());
    drift_ppm += s.drift_ppm;
    require(std::abs(ahead) <= static_cast<double>(furthest_ahead.count()), "faults.skews.ahead",
            in_ns(s.ahead), "the skews of a rank add up to at most 180 days, ahead or behind");
    require(std::abs(drift_ppm) <= most_drift_ppm, "faults.skews.drift_ppm", s.drift_ppm,
            "the skews of a rank add up to at most 500000, gained or lost");
  }
  for (const corruption& c : o.faults.corruptions) {
    rank(c.from, "faults.corruptions.from");
    rank(c.to, "faults.corruptions.to");
  }
}

options::options() : seed(wanted_seed().value_or(1)) {}

void explore(std::uint64_t first, std::uint64_t count, const std::function<void(std::uint64_t)>& scenario) {
  if (const auto only = wanted_seed()) {
    scenario(*only);
    return;
  }
  constexpr std::uint64_t last = std::numeric_limits<std::int64_t>::max();
  if (first > last || count > last - first + 1)
    throw error(errc::invalid_argument,
                fmt::format("explore: seeds end at {}, the last one that {} takes", last, variable));
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    try {
      scenario(seed);
    } catch (const std::exception& e) {
      base::log_error(fmt::format("simulation failed with seed {}; to run it again: {}={}\n{}", seed,
                                  variable, seed, e.what()));
      throw;
    }
  }
}

bool report::stuck() const noexcept {
  return std::ranges::any_of(ranks, [](const rank_report& r) { return r.how == ending::stuck; });
}

bool report::all_returned() const noexcept {
  return std::ranges::all_of(ranks, [](const rank_report& r) { return r.how == ending::returned; });
}

std::string report::text() const {
  std::string text =
      fmt::format("seed {}: {} ranks, {} us, {} frames with {} bytes, {} events, hash {:016x}{}\n", seed,
                  ranks.size(), static_cast<double>(time.count()) / 1000, frames, bytes, events, hash,
                  repeatable ? "" : " (real time was waited for: another run may differ)");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const rank_report& r = ranks[i];
    const std::string end = r.how == ending::returned ? fmt::format("returned {}", r.code)
                            : r.how == ending::threw  ? "threw: " + r.text
                            : r.how == ending::killed ? "was killed"
                                                      : "waits for ever: " + r.text;
    text += fmt::format("rank {} {}\n", i, end);
  }
  return text;
}

namespace detail {

report run(const options& o, tutti::detail::any_main main) {
  core::loop* const here = core::loop::current();
  if (here != nullptr && (here->stepped() || here->executor().running_in_this_thread()))
    throw error(errc::invalid_argument,
                "sim::run was called from inside a tutti::runtime or another simulation; call it on a thread "
                "of its own, as by tutti::compute");
  check(o);
  simulation s(o, main);
  return s.run();
}

}  // namespace detail
}  // namespace tutti::sim
