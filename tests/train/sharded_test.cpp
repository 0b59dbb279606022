// SPDX-License-Identifier: Apache-2.0
// Sharded training has the parameters of one process, bit for bit: for any number of ranks, with gradients in place or
// in memory that the pieces share, and when the state goes on with another number of ranks.
#include <tutti/train/sharded.hpp>

#include "support/local_world.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

using floats = std::vector<float>;
using optimiser = sharded<std::span<float>>;

const std::vector<std::size_t> sizes{5, 301, 1, 64, 1000, 7};  // with shares of no elements
constexpr int samples = 12;                                    // of a batch, divided among the ranks

// The gradient of some of the samples. Integers, so that any order of sums has the same bits.
float gradient(int first, int last, int step, std::size_t piece, std::size_t k) {
  int sum = 0;
  for (int s = first; s < last; ++s) sum += (s * 7 + step * 3 + static_cast<int>(piece + k)) % 11 - 5;
  return static_cast<float>(sum);
}
void momentum_step(float& parameter, float& momentum, float g) {
  momentum = momentum / 2 + g;
  parameter -= momentum / 8;
}

floats first_parameters() {
  floats p(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  for (std::size_t k = 0; k < p.size(); ++k) p[k] = static_cast<float>(k % 100);
  return p;
}
// The parameters and the state of one process after that many steps.
std::pair<floats, floats> of_one_process(int steps) {
  floats p = first_parameters(), momentum(p.size());
  for (int step = 0; step < steps; ++step)
    for (std::size_t i = 0, at = 0; i < sizes.size(); at += sizes[i++])
      for (std::size_t k = 0; k < sizes[i]; ++k)
        momentum_step(p[at + k], momentum[at + k], gradient(0, samples, step, i, k));
  return {p, momentum};
}

enum class way { in_place, shared_memory, other_thread, any_order, ready_at_the_end };

// A rank's model, and memory for gradients: one for each piece, or one that all pieces share.
struct model {
  model(const communicator& c, way how)
      : rank(c.rank()), ranks(c.size()), parameters(c.rank() == 0 ? first_parameters() : floats(1378)) {
    gradients.resize(sizes.size());
    shares.resize(sizes.size());
    for (std::size_t i = 0, at = 0; i < sizes.size(); at += sizes[i++]) {
      const bool shared = how == way::shared_memory;
      floats& memory = gradients[shared ? 0 : i];
      memory.resize(shared ? 1000 : sizes[i]);
      pieces.push_back({std::span(parameters).subspan(at, sizes[i]), std::span(memory).first(sizes[i])});
      if (!shared) continue;
      shares[i].resize(share_of(pieces[i].gradient, rank, ranks).size());
      pieces[i].reduced = shares[i];
    }
  }
  // Averaged over the ranks this is the gradient of the whole batch.
  void backward(std::size_t i, int step) {
    const int first = samples / ranks * rank, last = samples / ranks * (rank + 1);
    for (std::size_t k = 0; k < sizes[i]; ++k)
      pieces[i].gradient[k] = static_cast<float>(ranks) * gradient(first, last, step, i, k);
  }

  int rank, ranks;
  floats parameters;
  std::vector<floats> gradients, shares;
  std::vector<sharded_piece<std::span<float>>> pieces;
};

task<> train(optimiser* o, model* m, floats* momentum, int first, int last, way how) {
  const std::size_t n = sizes.size();
  for (int step = first; step < last; ++step) {
    for (std::size_t i = 0; i < n; ++i) co_await o->gathered(i);
    const auto backward = [&] {
      for (std::size_t j = 0; j < n; ++j) {
        const std::size_t i = how == way::any_order ? (j + static_cast<std::size_t>(m->rank)) % n : n - 1 - j;
        m->backward(i, step);
        if (how != way::ready_at_the_end) o->ready(i);
      }
    };
    if (how == way::other_thread) {
      co_await compute(backward);
    } else if (how == way::shared_memory) {
      for (std::size_t i = n; i-- > 0;) {
        m->backward(i, step);
        o->ready(i);
        co_await o->reduced(i);  // the next one overwrites this gradient
      }
    } else {
      backward();
    }
    for (std::size_t i = n; i-- > 0;) {
      if (how == way::ready_at_the_end) o->ready(i);
      const shard<std::span<float>> own = co_await o->reduced(i);
      for (std::size_t k = 0; k < own.parameters.size(); ++k)
        momentum_step(own.parameters[k], (*momentum)[own.offset + k], own.gradient[k]);
    }
    o->gather();
  }
  co_await o->gathered();
}

task<> equals_one_process(communicator world, way how) {
  model m(world, how);
  optimiser o = co_await optimiser::create(world, m.pieces);
  floats momentum(o.own_elements());
  std::size_t all = o.own_elements();
  co_await world.all_reduce(all, tutti::sum);
  TUTTI_EXPECT(all == m.parameters.size());
  co_await train(&o, &m, &momentum, 0, 4, how);
  TUTTI_EXPECT(m.parameters == of_one_process(4).first);
}

// Three steps on each number of ranks, then the state goes to a world of the next. All ranks are in the first one.
task<> goes_on_with_fewer(communicator world) {
  floats parameters, state;  // of rank 0: what a checkpoint has
  int steps = 0;
  for (const int ranks : {4, 2, 3}) {
    communicator part = co_await world.split(world.rank() < ranks ? 0 : -1, 0);
    if (part) {
      model m(part, way::in_place);
      if (steps > 0 && part.rank() == 0) m.parameters.assign(parameters.begin(), parameters.end());
      optimiser o = co_await optimiser::create(part, m.pieces);
      floats momentum(o.own_elements());
      if (steps > 0) co_await o.scatter_state(state, momentum, 0);
      co_await train(&o, &m, &momentum, steps, steps + 3, way::in_place);
      parameters = m.parameters;
      state.assign(part.rank() == 0 ? parameters.size() : 0, 0);
      co_await o.gather_state(momentum, state, 0);
      const auto [right, right_state] = of_one_process(steps + 3);
      TUTTI_EXPECT(parameters == right);
      TUTTI_EXPECT(part.rank() != 0 || state == right_state);
    }
    steps += 3;
    co_await world.barrier();
  }
}

task<> step_once(optimiser* o, bool gives_up = false) {
  for (std::size_t i = sizes.size(); i-- > 0;) {
    o->ready(i);
    co_await o->reduced(i);
    if (gives_up && i == 3) throw std::runtime_error("no step");
  }
  o->gather();
  co_await o->gathered();
}

// Rank 1 ends in the middle of a step.
task<> ends_early_on_one(communicator world) {
  model m(world, way::in_place);
  std::optional<optimiser> o(co_await optimiser::create(world, m.pieces));
  const failure f = co_await failure_in(step_once(&*o, world.rank() == 1));
  if (world.rank() == 1) {
    TUTTI_EXPECT(f.says("no step"));
    o.reset();
  } else {
    TUTTI_EXPECT(f.code == errc::peer_left);
    TUTTI_EXPECT(f.says("rank 1"));
    bool refused = false;
    try {
      o->ready(0);
    } catch (const error& e) {
      refused = e.code() == errc::communicator_failed;
    }
    TUTTI_EXPECT(refused);
  }
  co_await world.barrier();  // `world` has not failed
}

task<> await_last(optimiser* o) { co_await o->reduced(sizes.size() - 1); }
task<> join(scope* s) { co_await s->join(); }

// Rank 1 is cancelled while it waits for the others' gradients.
task<> is_cancelled_on_one(communicator world) {
  model m(world, way::in_place);
  optimiser o = co_await optimiser::create(world, m.pieces);
  if (world.rank() == 1) {
    o.ready(sizes.size() - 1);
    scope waits;
    waits.spawn(await_last(&o));
    TUTTI_EXPECT(waits.running() == 1);
    waits.cancel();
    const failure f = co_await failure_in(join(&waits));
    TUTTI_EXPECT(f.code == errc::cancelled);
  }
  co_await world.barrier();
  if (world.rank() == 0) {
    const failure f = co_await failure_in(step_once(&o));
    TUTTI_EXPECT(f.code == errc::cancelled);
    TUTTI_EXPECT(f.says("rank 1"));
  }
  co_await world.barrier();
}

// A coroutine that waits for a reduction is destroyed, and another one takes its place.
task<> goes_on_without_one_waiter(communicator world) {
  model m(world, way::in_place);
  optimiser o = co_await optimiser::create(world, m.pieces);
  o.ready(sizes.size() - 1);
  {
    scope waits;
    if (world.rank() == 1) waits.spawn(await_last(&o));
  }
  co_await o.reduced(sizes.size() - 1);
  for (std::size_t i = sizes.size() - 1; i-- > 0;) {
    o.ready(i);
    co_await o.reduced(i);
  }
  o.gather();
  co_await o.gathered();
  co_await step_once(&o);
}

task<> create_and_step(communicator world, std::vector<sharded_piece<std::span<float>>> pieces) {
  optimiser o = co_await optimiser::create(world, std::move(pieces));
  co_await step_once(&o);
}

task<> refuses(communicator world) {
  model m(world, way::in_place);
  std::vector<sharded_piece<std::span<float>>> pieces = m.pieces;
  if (world.rank() == 1) pieces[2].gradient = {};
  const failure f = co_await failure_in(create_and_step(world, pieces));
  TUTTI_EXPECT(f.code == (world.rank() == 1 ? errc::invalid_argument : errc::peer_left));
  TUTTI_EXPECT(f.says(world.rank() == 1 ? "piece 2 has 1 parameters, a gradient of 0" : "rank 1"));

  optimiser o = co_await optimiser::create(world, m.pieces);
  failure wrong = co_await failure_in(o.gathered(6));
  TUTTI_EXPECT(wrong.code == errc::invalid_argument);
  o.ready(2);
  wrong = co_await failure_in(o.reduced(2));
  TUTTI_EXPECT(wrong.says("call ready(5) first"));
  for (const bool gathers : {false, true}) {
    bool refused = false;
    try {
      gathers ? o.gather() : o.ready(2);  // in the middle of a step, and a second time
    } catch (const error& e) {
      refused = e.code() == errc::invalid_argument;
    }
    TUTTI_EXPECT(refused);
  }
  co_await world.barrier();
}

// Rank 1 is the root and passes memory for most of the elements; then rank 2 lacks one of its own.
task<> refuses_small_buffers(communicator world) {
  model m(world, way::in_place);
  optimiser o = co_await optimiser::create(world, m.pieces);
  floats mine(o.own_elements(), 1), room(m.parameters.size(), 7);
  for (const int wrong : {1, 2}) {
    const bool is_wrong = world.rank() == wrong;
    const std::span<float> all = std::span(room).first(is_wrong && wrong == 1 ? 600 : room.size());
    const std::span<float> own = std::span(mine).first(mine.size() - (is_wrong && wrong == 2 ? 1 : 0));
    const failure gathers = co_await failure_in(o.gather_state(own, all, 1));
    const failure scatters = co_await failure_in(o.scatter_state(all, own, 1));
    for (const failure& f : {gathers, scatters}) {
      TUTTI_EXPECT(f.code == (is_wrong ? errc::invalid_argument : errc::mismatch));
      TUTTI_EXPECT(!is_wrong || f.says(std::to_string(wrong == 1 ? all.size() : own.size()) + " elements"));
    }
    TUTTI_EXPECT(std::ranges::count(room, 7.0F) == std::ssize(room));
  }
  co_await o.gather_state(mine, room, 1);
  TUTTI_EXPECT(std::ranges::count(room, 1.0F) == (world.rank() == 1 ? std::ssize(room) : 0));
}

}  // namespace

TEST_CASE("sharded: the parameters of one process, for any number of ranks and any order of gradients") {
  for (const int ranks : {1, 2, 3, 4})
    for (const way how :
         {way::in_place, way::shared_memory, way::other_thread, way::any_order, way::ready_at_the_end}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(how));
      CHECK_NOTHROW(
          run_local(ranks, [=](communicator world) { return equals_one_process(std::move(world), how); }));
    }
}

TEST_CASE("sharded: state that was gathered from four ranks goes on with two, and then with three") {
  CHECK_NOTHROW(run_local(4, goes_on_with_fewer));
}

TEST_CASE(
    "sharded: a step that one rank ends early, or cancels, fails on all, and not the program's "
    "communicator") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(3, over(transport), ends_early_on_one));
    CHECK_NOTHROW(run_local(2, over(transport), is_cancelled_on_one));
    CHECK_NOTHROW(run_local(2, over(transport), goes_on_without_one_waiter));
  }
}

TEST_CASE("sharded: wrong pieces and calls are refused, and no rank waits") {
  CHECK_NOTHROW(run_local(3, over("shm"), refuses));
}

TEST_CASE("sharded: buffers that are too small for the state are refused, and no rank waits") {
  CHECK_NOTHROW(run_local(3, over("shm"), refuses_small_buffers));
}
