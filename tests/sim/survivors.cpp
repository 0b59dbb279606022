// SPDX-License-Identifier: Apache-2.0
#include "sim/survivors.hpp"

#include "comm/communicator_state.hpp"
#include "sim/scenarios.hpp"
#include "support/local_world.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::test {
namespace {

// Its members as ranks of the world.
std::vector<int> members_of(const communicator& c) {
  const operation<> any = c.barrier();
  return any.what().comm->group().members();
}

std::string to_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += (text.empty() ? "" : ",") + std::to_string(r);
  return "{" + text + "}";
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::uint64_t weight(int world_rank) { return 1 + static_cast<std::uint64_t>(world_rank) * 1000; }

// After a sum, or after a shrink() that a rank has cancelled, another one may succeed.
bool can_be_mended(std::error_code code) {
  return code == errc::peer_failed || code == errc::peer_left || code == errc::communicator_failed ||
         code == errc::cancelled || code == errc::timed_out;
}

[[noreturn]] void hand_on(std::error_code code, const std::string& text) {
  throw error(static_cast<errc>(code.value()), text);
}

// Returns false if it has failed.
task<bool> add_up(communicator now, int me, std::size_t count) {
  std::vector<std::uint64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = weight(me) + i;
  const auto ended = co_await as_result(now.all_reduce(values, sum));
  if (ended.error) {
    if (!can_be_mended(ended.error)) hand_on(ended.error, ended.message);
    co_return false;
  }
  std::uint64_t all = 0;
  for (const int member : members_of(now)) all += weight(member);
  for (std::size_t i = 0; i < count; ++i)
    if (values[i] != all + i * static_cast<std::uint64_t>(now.size()))
      throw std::runtime_error("a wrong sum on " + now.name());
  co_return true;
}

enum class way { to_the_end, with_little_time, and_drops_it };

}  // namespace

task<> survive(communicator world, survival plan, census* all) {
  const int me = world.rank();
  random_numbers numbers(plan.seed * 31 + static_cast<std::uint64_t>(me));
  if (plan.meets) {
    std::vector<int> mine(static_cast<std::size_t>(world.size()), me), others(mine.size());
    const auto met = co_await as_result(world.all_to_all(mine, others).with(algorithm::pairwise));
    if (met.error && !can_be_mended(met.error)) hand_on(met.error, met.message);
  }
  communicator now = std::move(world);
  int round = 0;  // of `now`
  int to_give_up = plan.gives_up ? 2 : 0;
  for (int done = 0; done < plan.sums;) {
    const bool asks = plan.asks && numbers.one_in(6);
    bool whole = false;
    if (!asks) whole = co_await add_up(now, me, plan.count);
    if (whole) {
      ++done;
      continue;
    }
    ++round;
    way how = way::to_the_end;
    if (to_give_up > 0 && numbers.one_in(2)) {
      --to_give_up;
      how = numbers.one_in(4) ? way::and_drops_it : way::with_little_time;
    }
    constexpr std::size_t most_us[] = {5, 50, 500, 5000};
    const std::chrono::microseconds soon(1 + numbers.below(most_us[numbers.below(std::size(most_us))]));
    result<communicator> next;
    if (how == way::and_drops_it) {
      auto dropped = start(now.shrink());
      co_await sleep_for(soon);
      break;
    }
    if (how == way::with_little_time) {
      next = co_await as_result(with_timeout(now.shrink(), soon));
    } else {
      next = co_await as_result(now.shrink());
    }
    if (next.error) {
      if (!plan.gives_up || (next.error != errc::timed_out && next.error != errc::cancelled))
        hand_on(next.error, next.message);
      continue;
    }
    all->note(me, now, round, next.value);
    now = std::move(next.value);
    round = 0;
  }
  all->leaves(me);
}

void census::note(int me, const communicator& old, int round, const communicator& made) {
  entry e{me, old.name(), round, made.name(), members_of(old), members_of(made), {}, left_};
  for (const int r : old.failed_ranks()) e.failed.push_back(e.before[static_cast<std::size_t>(r)]);
  entries_.push_back(std::move(e));
}

void census::check(const sim::report& r, const std::string& faults, bool only_deaths, bool gives_up) const {
  const auto wrong = [&](const entry& e, const std::string& why) {
    throw std::runtime_error(why + ": rank " + std::to_string(e.rank) + " has got " + e.made + " with " +
                             to_text(e.members) + " from " + e.old + " (" + to_text(e.before) + "), round " +
                             std::to_string(e.round) + ", and takes for failed " + to_text(e.failed) + "\n" +
                             faults + "\n" + r.text());
  };
  const auto killed = [&r](int rank) {
    return r.ranks[static_cast<std::size_t>(rank)].how == sim::ending::killed;
  };
  for (const entry& e : entries_) {
    if (!contains(e.members, e.rank)) wrong(e, "it is no member of its own communicator");
    for (const entry& other : entries_) {
      if (other.made == e.made && (other.members != e.members || other.old != e.old))
        wrong(e, "others have it with " + to_text(other.members) + " from " + other.old);
      // An agreement has no effect if all that its gatherer told before it died have died or left, too.
      const bool both_live = !killed(e.rank) && !killed(other.rank) && !contains(e.left, other.rank) &&
                             !contains(other.left, e.rank);
      if (only_deaths && both_live && other.old == e.old && other.round == e.round && other.made != e.made)
        wrong(e, "rank " + std::to_string(other.rank) + " has got " + other.made);
    }
    if (!only_deaths) continue;
    for (const int rank : e.failed)
      if (!killed(rank) && !contains(left_, rank)) wrong(e, "one of them lives");
  }
  // A rank that gave a communicator up takes no part in its next agreement, and may die later.
  if (!only_deaths || gives_up) return;
  // All members of a communicator know each failed rank that the agreement left out.
  for (const entry& e : entries_)
    for (const int rank : e.failed) {
      const bool agreed = !contains(e.members, rank) && !contains(left_, rank);
      for (const entry& other : entries_)
        if (agreed && other.made == e.made && !contains(other.failed, rank))
          wrong(other,
                "rank " + std::to_string(e.rank) + " knows that " + std::to_string(rank) + " has died");
    }
}

sim::report run_survival(const sim::options& o, const survival& plan, bool only_deaths) {
  census all;
  const sim::report r =
      sim::run(o, [plan, &all](communicator world) { return survive(std::move(world), plan, &all); });
  const auto wrong = [&](const std::string& why) {
    throw std::runtime_error(why + "\n" + o.faults.text() + "\n" + r.text());
  };
  if (r.stuck()) wrong("ranks wait for ever");
  for (const sim::rank_report& one : r.ranks) {
    if (one.how != sim::ending::threw) continue;
    if (one.reason == errc::success) wrong("a wrong result");
    if (only_deaths) wrong("a rank that lives could not go on");
  }
  all.check(r, o.faults.text(), only_deaths, plan.gives_up);
  // A silent host is noticed after 3 s, a rank that left lingers for 5 s. The timeout is much longer.
  if (r.time > std::chrono::minutes(5)) wrong("something was waited for until its timeout");
  return r;
}

void run_survival(std::uint64_t seed) {
  sim::options o = small_world(seed);
  random_numbers numbers(seed * 7 + 5);
  o.ranks = 2 + static_cast<int>(numbers.below(6));
  survival plan;
  plan.seed = seed;
  plan.count = numbers.one_in(3) ? 1 + numbers.below(3000) : 1;
  plan.meets = numbers.one_in(2);
  plan.asks = seed % 2 == 0 || numbers.one_in(4);
  plan.gives_up = numbers.one_in(3);
  bool only_deaths = true;
  if (seed % 2 == 1 && numbers.one_in(4)) {
    o.faults = sim::faults::random(seed, o.ranks, std::chrono::milliseconds(3));
    only_deaths = false;
  } else if (seed % 2 == 1) {
    // Some ranks, up to all but one, mostly while others expect them.
    std::vector<int> left;
    for (int r = 0; r < o.ranks; ++r) left.push_back(r);
    for (std::size_t n = 1 + numbers.below(left.size() - 1); n > 0; --n) {
      const auto which = left.begin() + static_cast<std::ptrdiff_t>(numbers.below(left.size()));
      sim::death d;
      d.rank = *which;
      left.erase(which);
      if (numbers.one_in(4)) {
        d.at = std::chrono::microseconds(numbers.below(1500));
      } else {
        d.frames = 1 + numbers.below(numbers.one_in(2) ? 30 : 120);
      }
      o.faults.deaths.push_back(d);
    }
  }
  run_survival(o, plan, only_deaths);
}

}  // namespace tutti::test
