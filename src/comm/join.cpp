// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"
#include "bootstrap/rendezvous.hpp"
#include "comm/identity.hpp"
#include "comm/world.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <tutti/join.hpp>
#include <tutti/objects.hpp>
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
task<meeting> meet(store* ours, std::string name, int ranks, std::string secret) {
  meeting m;
  const std::int64_t number = co_await ours->add("jobs", 1);
  if (number > 2)
    throw error(
        errc::invalid_argument,
        fmt::format("join: two jobs have already met as '{}' at {}: give each pair of jobs a name of its own",
                    name, ours->name()));
  m.place = static_cast<int>(number) - 1;
  const auto key_of = [&](int place) { return fmt::format("ranks of job {}", place); };
  co_await ours->set(key_of(m.place), std::to_string(ranks));
  const std::string others = co_await ours->get(key_of(1 - m.place));
  m.text =
      co_await bootstrap::agree_on_secret(*ours, std::move(secret), core::deadline_after(ours->timeout()));
  m.others = base::to_number<std::int32_t>(others).value_or(0);
  if (m.others < 1)
    throw error(errc::protocol,
                fmt::format("join: the store {} holds no number of ranks for '{}': let no other "
                            "program use these keys",
                            ours->name(), name));
  co_return m;
}

}  // namespace

task<joined> join(communicator world, std::string name, store& through, init_options options) {
  comm::world& w = comm::world_of(comm::state_for(world, "join"));
  prefix_store ours(through, name);
  meeting found;
  std::exception_ptr failure;
  if (world.rank() == 0) {
    try {
      found = co_await meet(&ours, name, world.size(), options.secret);
    } catch (const error& e) {
      failure = std::current_exception();
      found = {-1, 0, e.what()};
    }
  }
  std::vector<std::int32_t> numbers = {found.place, found.others,
                                       static_cast<std::int32_t>(found.text.size())};
  co_await world.broadcast(numbers, 0);
  found.text.resize(static_cast<std::size_t>(numbers[2]));
  co_await world.broadcast(found.text, 0);
  if (failure) std::rethrow_exception(failure);
  if (numbers[0] < 0) throw error(errc::join_failed, fmt::format("join as '{}': {}", name, found.text));

  const joined_ranks first{0, numbers[0] == 0 ? world.size() : numbers[1]};
  const joined_ranks second{first.size, world.size() + numbers[1] - first.size};
  joined result;
  result.here = numbers[0] == 0 ? first : second;
  result.there = numbers[0] == 0 ? second : first;
  options.secret = found.text;
  options.rank = result.here.first + world.rank();
  options.world_size = first.size + second.size;
  result.all = co_await w.owner()->join(std::move(options), ours);
  co_return result;
}

}  // namespace tutti
