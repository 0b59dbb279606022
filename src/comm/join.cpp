// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"
#include "bootstrap/rendezvous.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <string>
#include <tutti/join.hpp>
#include <tutti/objects.hpp>
#include <tutti/scope.hpp>
#include <tutti/sleep.hpp>
#include <tutti/when_any.hpp>
#include <tutti/with_timeout.hpp>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// What rank 0 has found at the store.
struct meeting {
  std::int32_t place = -1;  // 0: this job came first; -1: it failed
  std::int32_t others = 0;  // ranks of the other job
  std::string text;         // the secret of both jobs, or why it failed
};

// The ranks of two jobs meet by their numbers: each writes its own, and waits for the other's.
task<> meet(store* ours, std::string name, int ranks, std::string secret, meeting* found) {
  const std::string ended = co_await bootstrap::why_ended(*ours);
  if (!ended.empty())
    throw error(errc::join_failed, fmt::format("nobody can join as '{}' at {} any more: {}. Both jobs need "
                                               "another name",
                                               name, ours->name(), ended));
  const std::int64_t number = co_await ours->add("jobs", 1);
  if (number > 2)
    throw error(
        errc::invalid_argument,
        fmt::format("join: two jobs have already met as '{}' at {}: give each pair of jobs a name of its own",
                    name, ours->name()));
  found->place = static_cast<std::int32_t>(number) - 1;
  const auto key_of = [&](int place) { return fmt::format("ranks of job {}", place); };
  co_await ours->set(key_of(found->place), std::to_string(ranks));
  const std::string others = co_await ours->get(key_of(1 - found->place));
  found->text =
      co_await bootstrap::agree_on_secret(*ours, std::move(secret), core::deadline_after(ours->timeout()));
  found->others = base::to_number<std::int32_t>(others).value_or(0);
  if (found->others < 1)
    throw error(errc::protocol,
                fmt::format("join: the store {} holds no number of ranks for '{}': let no other "
                            "program use these keys",
                            ours->name(), name));
}

// Fails when this rank of the own job dies. How long the others take to join is not limited here.
task<> watch(communicator among, int peer) {
  char nothing = 0;
  try {
    co_await with_timeout(among.recv(nothing, peer), std::chrono::hours(24));
  } catch (const error& e) {
    if (e.code() != errc::peer_left) throw;  // it has joined
  }
}

// The ranks of both jobs learn why they cannot join.
task<> give_up(store* ours, std::string why) {
  try {
    co_await bootstrap::end_meeting(*ours, std::move(why));
  } catch (...) {  // the store has gone, too
  }
}

// Ends only when a rank of this job dies. Rank 0 watches the others, and they watch it.
task<> look_out(communicator among, store* ours) {
  std::exception_ptr failure;
  std::string why;
  try {
    scope all;
    if (among.rank() > 0) all.spawn(watch(among, 0));
    for (int r = 1; among.rank() == 0 && r < among.size(); ++r) all.spawn(watch(among, r));
    co_await all.join();
    co_await sleep_for(std::chrono::hours(24));  // joining ends before
  } catch (const error& e) {
    failure = std::current_exception();
    if (e.code() == errc::peer_failed) why = e.what();
  }
  if (!why.empty()) co_await give_up(ours, std::move(why));
  if (failure) std::rethrow_exception(failure);
}

// Passes on what rank 0 has found, which waits for the store for `patience` at most.
task<> spread(communicator world, meeting* found, std::chrono::milliseconds patience) {
  std::vector<std::int32_t> numbers = {found->place, found->others,
                                       static_cast<std::int32_t>(found->text.size())};
  co_await with_timeout(world.broadcast(numbers, 0), patience);
  found->place = numbers[0];
  found->others = numbers[1];
  found->text.resize(static_cast<std::size_t>(numbers[2]));
  co_await world.broadcast(found->text, 0);
}

}  // namespace

task<joined> join(communicator world, std::string name, store& through, init_options options) {
  comm::communicator_state& state = comm::state_for(world, "join");
  comm::world& w = comm::world_of(state);
  prefix_store ours(through, name);
  meeting found;
  std::exception_ptr failure;
  std::string why;
  if (world.rank() == 0) {
    try {
      co_await meet(&ours, name, world.size(), options.secret, &found);
    } catch (...) {
      failure = std::current_exception();
      const std::string text = core::what_of(failure, errc::system).text;
      if (found.place >= 0)
        why = fmt::format("the job that came {} gave up: {}", found.place == 0 ? "first" : "second", text);
      found = {-1, 0, text};
    }
  }
  communicator among;
  try {
    co_await spread(world, &found, ours.timeout() + state.pending().timeout());
    if (found.place >= 0) among = co_await world.duplicate();
  } catch (const error& e) {
    if (!failure) failure = std::current_exception();
    if (why.empty()) why = e.what();
  }
  if (!why.empty()) co_await give_up(&ours, std::move(why));
  if (failure) std::rethrow_exception(failure);
  if (found.place < 0) throw error(errc::join_failed, fmt::format("join as '{}': {}", name, found.text));

  const joined_ranks first{0, found.place == 0 ? world.size() : found.others};
  const joined_ranks second{first.size, world.size() + found.others - first.size};
  joined result;
  result.here = found.place == 0 ? first : second;
  result.there = found.place == 0 ? second : first;
  options.secret = found.text;
  options.rank = result.here.first + world.rank();
  options.world_size = first.size + second.size;
  auto entered =
      co_await when_any(w.owner()->join(std::move(options), ours), look_out(std::move(among), &ours));
  result.all = std::get<0>(std::move(entered));
  co_return result;
}

}  // namespace tutti
