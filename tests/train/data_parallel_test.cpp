// SPDX-License-Identifier: Apache-2.0
// Averaging in buckets gives the same bits as one all_reduce, for any layout of gradients and any order of
// completion.
#include <tutti/train/data_parallel.hpp>

#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <thread>
#include <tutti/train/replicas.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

using clock = std::chrono::steady_clock;

// Gradients of several sizes, in one array or in one array each.
struct model {
  explicit model(bool together, std::vector<std::size_t> sizes = {5, 300, 1, 64, 1000, 7}) {
    std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    memory.resize(together ? 1 : sizes.size());
    if (together) memory[0].resize(total);
    std::size_t at = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (!together) memory[i].resize(sizes[i]);
      gradients.emplace_back(together ? std::span(memory[0]).subspan(at, sizes[i]) : std::span(memory[i]));
      at += sizes[i];
    }
  }
  // Different for each rank and step.
  void compute(int rank, int step) {
    random_numbers random(static_cast<std::uint64_t>(1000 * step + rank + 1));
    for (const gradient_view& g : gradients)
      for (float& v : g.values) v = static_cast<float>(random.below(2000)) / 7 - 100;
  }
  std::vector<float> flat() const {
    std::vector<float> all;
    for (const gradient_view& g : gradients) all.insert(all.end(), g.values.begin(), g.values.end());
    return all;
  }
  std::vector<std::vector<float>> memory;
  std::vector<gradient_view> gradients;
};

data_parallel_options small_buckets() {
  data_parallel_options o;
  o.first_bucket_bytes = 16;
  o.bucket_bytes = 2000;
  return o;
}

// Runs the loop until the condition holds.
task<> turn_until(communicator world, const std::atomic<bool>* done) {
  const auto deadline = clock::now() + patience;
  while (!done->load() && clock::now() < deadline)
    co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
  TUTTI_EXPECT(done->load());
}

task<> averages(communicator world, bool together, bool sums, int order) {
  model m(together), plain(true);
  data_parallel_options o = small_buckets();
  o.sum = sums;
  data_parallel parallel = co_await data_parallel::create(world, m.gradients, o);
  TUTTI_EXPECT(parallel.buckets() == 3);  // {7}, {1000}, {64, 1, 300, 5}
  for (int step = 0; step < 5; ++step) {
    m.compute(world.rank(), step);
    plain.compute(world.rank(), step);
    std::atomic<bool> done = false;
    std::thread backward([&] {
      const std::size_t n = m.gradients.size();
      for (std::size_t i = 0; i < n && order != 3; ++i)
        parallel.ready(order == 0   ? n - 1 - i
                       : order == 1 ? i
                                    : (i + static_cast<std::size_t>(world.rank())) % n);
      done = true;
    });
    co_await turn_until(world, &done);
    backward.join();
    // A collective of the program in between.
    co_await world.barrier();
    co_await parallel.reduced();
    if (sums)
      co_await world.all_reduce(plain.memory[0], tutti::sum);
    else
      co_await world.all_reduce(plain.memory[0], tutti::avg);
    const std::vector<float> got = m.flat();
    float worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - plain.memory[0][i]));
    TUTTI_EXPECT(worst < 1e-4F);
    const replica_check check = co_await compare_replicas(world, got);
    TUTTI_EXPECT(check.agree());
    TUTTI_EXPECT(parallel.last().bytes == got.size() * sizeof(float));
  }
}

// Rank 1 destroys it before its first bucket.
task<> is_destroyed_by_one(communicator world) {
  model m(true);
  std::optional<data_parallel> parallel(co_await data_parallel::create(world, m.gradients, small_buckets()));
  if (world.rank() == 1) {
    parallel.reset();
  } else {
    for (std::size_t i = 0; i < m.gradients.size(); ++i) parallel->ready(i);
    const failure f = co_await failure_in(parallel->reduced());
    TUTTI_EXPECT(f.code == errc::peer_left);
    TUTTI_EXPECT(f.says("rank 1"));
  }
  co_await world.barrier();
}

task<> await_reduced(data_parallel* parallel) { co_await parallel->reduced(); }

// Rank 1 destroys the coroutine that waits for the averages.
task<> is_given_up_by_one(communicator world) {
  model m(true);
  data_parallel parallel = co_await data_parallel::create(world, m.gradients, small_buckets());
  if (world.rank() == 1) {
    {
      scope waits;
      waits.spawn(await_reduced(&parallel));
      TUTTI_EXPECT(waits.running() == 1);
    }
    co_await world.barrier();
  } else {
    co_await world.barrier();  // before it, rank 1 lacks this rank's gradients
    const failure f = co_await failure_in(parallel.reduced());
    TUTTI_EXPECT(f.code == errc::cancelled);
    TUTTI_EXPECT(f.says("rank 1"));
  }
  const failure again = co_await failure_in(parallel.reduced());
  TUTTI_EXPECT(again.code == errc::communicator_failed);
  co_await world.barrier();
}

}  // namespace

TEST_CASE("data_parallel: a step whose coroutine is destroyed fails on all ranks") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), is_given_up_by_one));
  }
}

TEST_CASE("data_parallel: the others do not wait for a rank that has destroyed it") {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(2, over(transport), is_destroyed_by_one));
  }
}

TEST_CASE("data_parallel: the average for any layout and order of gradients, even if none is ready") {
  for (const bool together : {true, false})
    for (const bool sums : {true, false})
      for (const int order : {0, 1, 2, 3}) {
        CAPTURE(together);
        CAPTURE(order);
        run_local(3, [=](communicator world) { return averages(std::move(world), together, sums, order); });
      }
  run_local(1, [](communicator world) { return averages(std::move(world), false, false, 0); });
}

TEST_CASE("data_parallel: buckets are filled from the last gradient on") {
  run_local(2, [](communicator world) -> task<> {
    model m(false, {100, 100, 100, 100, 100});
    data_parallel_options o;
    o.first_bucket_bytes = 400;
    o.bucket_bytes = 700;
    const data_parallel by_two = co_await data_parallel::create(world, m.gradients, o);
    TUTTI_EXPECT(by_two.buckets() == 3);
    const data_parallel one = co_await data_parallel::create(world, m.gradients);
    TUTTI_EXPECT(one.buckets() == 1);
    o.first_bucket_bytes = o.bucket_bytes = 1;
    const data_parallel each = co_await data_parallel::create(world, m.gradients, o);
    TUTTI_EXPECT(each.buckets() == 5);
  });
}

namespace {

// Records when each bucket's reduction has ended.
class watched_hook final : public gradient_hook {
 public:
  task<> reduce(communicator c, gradient_bucket bucket) override {
    const std::size_t index = bucket.index;
    co_await inner->reduce(std::move(c), bucket);
    ended[index] = true;
  }
  std::shared_ptr<gradient_hook> inner = identity_hook();
  std::array<std::atomic<bool>, 8> ended{};
};

}  // namespace

TEST_CASE("data_parallel: a bucket is averaged while the backward pass still computes") {
  run_local(3, [](communicator world) -> task<> {
    model m(false, {50, 50, 50});
    auto hook = std::make_shared<watched_hook>();
    data_parallel_options o;
    o.first_bucket_bytes = o.bucket_bytes = 200;
    o.hook = hook;
    data_parallel parallel = co_await data_parallel::create(world, m.gradients, o);
    m.compute(world.rank(), 0);
    std::atomic<bool> done = false, in_time = true;
    std::thread backward([&] {
      const auto deadline = clock::now() + patience;
      for (std::size_t i = 3; i-- > 0;) {
        parallel.ready(i);
        if (i == 0) break;
        // The next gradient is computed until the average of this one is complete.
        while (!hook->ended[2 - i] && clock::now() < deadline) std::this_thread::yield();
        in_time = in_time && hook->ended[2 - i];
      }
      done = true;
    });
    co_await turn_until(world, &done);
    backward.join();
    TUTTI_EXPECT(in_time);
    co_await parallel.reduced();
    TUTTI_EXPECT(parallel.last().communication_seconds > 0 && parallel.last().overlap() >= 0);
  });
}

TEST_CASE("data_parallel: gradients add up without averaging, and then with it") {
  run_local(2, [](communicator world) -> task<> {
    model m(false, {10, 20});
    data_parallel parallel = co_await data_parallel::create(world, m.gradients, small_buckets());
    const float mine = static_cast<float>(world.rank() + 1);
    const auto backward = [&] {
      for (std::size_t i = 2; i-- > 0;) {
        for (float& v : m.gradients[i].values) v += mine;
        parallel.ready(i);
      }
    };
    for (int step = 0; step < 3; ++step) {
      {
        const auto guard = parallel.no_sync();
        for (int i = 0; i < 3; ++i) backward();
        TUTTI_EXPECT(m.memory[0][0] == 3 * mine);
        const failure inside = co_await failure_in(parallel.reduced());
        TUTTI_EXPECT(inside.code == errc::invalid_argument);
      }
      {
        const auto outer = parallel.no_sync();
        {
          const auto inner = parallel.no_sync();
        }
        const failure inside = co_await failure_in(parallel.reduced());
        TUTTI_EXPECT(inside.code == errc::invalid_argument);
      }
      backward();
      co_await parallel.reduced();
      TUTTI_EXPECT(m.memory[0][9] == 6 && m.memory[1][19] == 6);  // 4 * (1 + 2) / 2
      for (auto& values : m.memory) std::ranges::fill(values, 0.0F);
    }
  });
}

TEST_CASE("data_parallel: the initial state is that of the root") {
  run_local(3, [](communicator world) -> task<> {
    model m(false);
    m.compute(world.rank(), 0);
    const data_parallel parallel = co_await data_parallel::create(world, m.gradients);
    std::vector<std::span<float>> pieces;
    for (const gradient_view& g : m.gradients) pieces.push_back(g.values);
    co_await parallel.broadcast(pieces, 2);
    model of_root(false);
    of_root.compute(2, 0);
    TUTTI_EXPECT(m.flat() == of_root.flat());
  });
}

namespace {

// Each rank has as many batches as `batches` says, each with as many samples as the rank's number. The result
// must be the weighted average.
task<> uneven_training(communicator world, std::vector<int> batches, std::shared_ptr<gradient_hook> hook) {
  model m(false, {3, 40});
  data_parallel_options o = small_buckets();
  o.uneven = true;
  o.hook = std::move(hook);
  data_parallel parallel = co_await data_parallel::create(world, m.gradients, o);
  const auto gradient_of = [](int rank, int step) { return static_cast<float>(10 * rank + step); };
  const auto expected = [&](int step) {
    double sum = 0, weights = 0;
    for (int r = 0; r < world.size(); ++r)
      if (step < batches[static_cast<std::size_t>(r)]) {
        sum += (r + 1) * static_cast<double>(gradient_of(r, step));
        weights += r + 1;
      }
    return sum / weights;
  };
  const auto is_average = [&](int step) {
    for (const float v : m.flat())
      if (std::abs(static_cast<double>(v) - expected(step)) > 1e-4) return false;
    return true;
  };
  const int mine = batches[static_cast<std::size_t>(world.rank())];
  int step = 0;
  for (; step < mine; ++step) {
    parallel.begin_step(world.rank() + 1);
    for (std::size_t i = 2; i-- > 0;) {
      std::ranges::fill(m.gradients[i].values, gradient_of(world.rank(), step));
      parallel.ready(i);
    }
    co_await parallel.reduced();
    TUTTI_EXPECT(is_average(step));
  }
  for (;; ++step) {
    const bool more = co_await parallel.join_step();
    if (!more) break;
    TUTTI_EXPECT(is_average(step));
  }
  TUTTI_EXPECT(step == *std::max_element(batches.begin(), batches.end()));
}

}  // namespace

TEST_CASE("data_parallel: ranks that run out of batches take part until the last has finished") {
  for (const std::vector<int>& batches :
       {std::vector<int>{3, 1, 5}, {0, 0, 2}, {2, 2, 2}, {0, 0, 0}, {7, 0, 1}})
    for (const bool hooked : {false, true})
      run_local(3, [&](communicator world) {
        return uneven_training(std::move(world), batches, hooked ? identity_hook() : nullptr);
      });
}

namespace {

// Such as the mean of no samples.
task<> nan_of_weight_zero(communicator world, std::shared_ptr<gradient_hook> hook) {
  model m(false, {3, 40});
  data_parallel_options o = small_buckets();
  o.uneven = true;
  o.hook = std::move(hook);
  data_parallel parallel = co_await data_parallel::create(world, m.gradients, o);
  const bool none = world.rank() == 1;
  for (const gradient_view& g : m.gradients)
    std::ranges::fill(g.values, none ? std::numeric_limits<float>::quiet_NaN() : 2.0F);
  parallel.begin_step(none ? 0 : 3);
  co_await parallel.reduced();
  for (const float v : m.flat()) TUTTI_EXPECT(std::abs(v - 2) < 1e-5F);
}

}  // namespace

TEST_CASE("data_parallel: a gradient of weight 0 is left out, even if it is NaN") {
  for (const bool hooked : {false, true})
    run_local(3, [&](communicator world) {
      return nan_of_weight_zero(std::move(world), hooked ? identity_hook() : nullptr);
    });
}

namespace {

// Weights whose products with gradients are beyond float16; the last rank has no batches.
task<> large_weights(communicator world, bool sums) {
  model m(false, {3, 40});
  data_parallel_options o = small_buckets();
  o.uneven = true;
  o.sum = sums;
  o.hook = float16_hook();
  data_parallel parallel = co_await data_parallel::create(world, m.gradients, o);
  for (const double unit : {1e6, 1e-9, 0.0}) {
    const int r = world.rank();
    if (r == world.size() - 1) {
      const bool more = co_await parallel.join_step();
      TUTTI_EXPECT(more);
    } else {
      parallel.begin_step(unit * (r + 1));
      for (std::size_t i = 2; i-- > 0;) {
        std::ranges::fill(m.gradients[i].values, static_cast<float>(r + 1));
        parallel.ready(i);
      }
      co_await parallel.reduced();
    }
    // Gradients and weights of 1 and 2.
    const double expected = unit == 0 ? 0 : sums ? 5 * unit : 5.0 / 3;
    for (const float v : m.flat())
      TUTTI_EXPECT(std::abs(static_cast<double>(v) - expected) <= expected / 500);
  }
  const bool more = co_await parallel.join_step();
  TUTTI_EXPECT(!more);
}

// The launch of the last ready() may run after the step that it was meant for.
task<> late_launch(communicator world) {
  model m(true);
  data_parallel_options o = small_buckets();
  o.uneven = true;
  data_parallel parallel = co_await data_parallel::create(world, m.gradients, o);
  std::thread([&] { parallel.ready(5); }).join();
  co_await parallel.reduced();
  for (int turn = 0; turn < 3; ++turn)
    co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
  parallel.begin_step(2);
  co_await parallel.reduced();
}

task<> create_with(communicator world, data_parallel_options of_rank_1) {
  model m(true);
  data_parallel_options o;
  if (world.rank() == 1) o = of_rank_1;
  co_await data_parallel::create(world, m.gradients, o);
}

}  // namespace

TEST_CASE("data_parallel: a hook gets numbers of the size of gradients, whatever the weights") {
  for (const bool sums : {false, true})
    run_local(3, [=](communicator world) { return large_weights(std::move(world), sums); });
}

TEST_CASE("data_parallel: a late launch does not begin the next step") { run_local(1, late_launch); }

TEST_CASE("data_parallel: all ranks refuse options that differ") {
  std::vector<data_parallel_options> all(3);
  all[0].hook = identity_hook();
  all[1].uneven = true;
  all[2].sum = true;
  for (const data_parallel_options& o : all)
    for (const failure& f : failures_of(2, {}, [&](communicator world) { return create_with(world, o); })) {
      CHECK(f.code == errc::mismatch);
      CHECK(f.says("rank 1"));
    }
}

TEST_CASE("data_parallel: a call within a step says that the step has not ended") {
  run_local(2, [](communicator world) -> task<> {
    model m(true, {10, 20});
    data_parallel parallel = co_await data_parallel::create(world, m.gradients);
    int begun = 0;
    if (world.rank() == 1) co_await world.recv(begun, 0);  // until then the step of rank 0 waits
    scope step;
    step.spawn(parallel.reduced());
    if (world.rank() == 0) {
      std::string text;
      try {
        parallel.ready(0);
      } catch (const error& e) {
        TUTTI_EXPECT(e.code() == errc::invalid_argument);
        text = e.what();
      }
      TUTTI_EXPECT(text.find("a step of it has not ended") != std::string::npos);
      co_await world.send(begun, 1);
    }
    co_await step.join();
    parallel.ready(0);
    co_await parallel.reduced();
  });
}

TEST_CASE("data_parallel: nobody waits for a rank whose create() is refused") {
  const auto all = failures_of(3, {}, [](communicator world) -> task<> {
    model m(true, {10, 20});
    if (world.rank() == 1) m.gradients.clear();
    co_await data_parallel::create(world, m.gradients);
  });
  CHECK(all[1].code == errc::invalid_argument);
  for (const int rank : {0, 2}) {
    CHECK(all[rank].code == errc::mismatch);
    CHECK(all[rank].says("refused on rank 1"));
  }
}

TEST_CASE("data_parallel: ranks that differ are compared with the first that is not refused") {
  const auto all = failures_of(3, {}, [](communicator world) -> task<> {
    model m(true, world.rank() == 1 ? std::vector<std::size_t>{10, 20} : std::vector<std::size_t>{30});
    if (world.rank() == 0) m.gradients.clear();
    co_await data_parallel::create(world, m.gradients);
  });
  for (const failure& f : all) {
    CHECK(f.code == errc::mismatch);
    CHECK(f.says("rank 2 registered other gradients, or passed other options, than rank 1"));
  }
}

TEST_CASE("data_parallel: all ranks refuse invalid calls") {
  const auto with = [](std::vector<gradient_view> gradients) {
    return failures_of(2, {}, [gradients](communicator world) -> task<> {
      co_await data_parallel::create(world, gradients);
    });
  };
  CHECK(with({})[1].code == errc::invalid_argument);
  std::vector<float> some(10);
  CHECK(with({gradient_view(std::span(some), 3)})[0].code == errc::invalid_argument);

  const auto differ = failures_of(3, {}, [](communicator world) -> task<> {
    model m(true, {10, world.rank() == 1 ? 21u : 20u});
    co_await data_parallel::create(world, m.gradients);
  });
  for (const failure& f : differ) {
    CHECK(f.code == errc::mismatch);
    CHECK(f.says("rank 1 registered"));
  }

  run_local(1, [](communicator world) -> task<> {
    model m(true, {10, 20});
    data_parallel parallel = co_await data_parallel::create(world, m.gradients);
    const auto refused = [&](auto call) {
      try {
        call();
      } catch (const error& e) {
        return e.code() == errc::invalid_argument;
      }
      return false;
    };
    parallel.ready(1);
    TUTTI_EXPECT(refused([&] { parallel.ready(1); }));
    TUTTI_EXPECT(refused([&] { parallel.ready(2); }));
    TUTTI_EXPECT(refused([&] { parallel.begin_step(1); }));
    const failure join = co_await failure_in(parallel.join_step());
    TUTTI_EXPECT(join.code == errc::invalid_argument);
    co_await parallel.reduced();
    data_parallel_options o;
    o.uneven = true;
    data_parallel uneven = co_await data_parallel::create(world, m.gradients, o);
    for (const double weight :
         {-1.0, 1e-50, 1e-40, 1e40, std::numeric_limits<double>::infinity(), std::nan("")})
      TUTTI_EXPECT(refused([&] { uneven.begin_step(weight); }));
    for (const double weight : {1e-30, 0.5, 1e30}) {
      for (const gradient_view& g : m.gradients) std::ranges::fill(g.values, 2.0F);
      uneven.begin_step(weight);
      co_await uneven.reduced();
      for (const float v : m.flat()) TUTTI_EXPECT(std::abs(v - 2) < 1e-5F);
    }
    parallel.ready(1);  // of the next step
    data_parallel empty;
    TUTTI_EXPECT(refused([&] { empty.ready(0); }));
    data_parallel moved = std::move(parallel);
    co_await moved.reduced();
  });
}

TEST_CASE("data_parallel: a rank that leaves ends the step on all; the program's communicator still works") {
  run_local(3, over("shm"), [](communicator world) -> task<> {
    model m(true);
    {
      data_parallel parallel = co_await data_parallel::create(world, m.gradients, small_buckets());
      if (world.rank() != 1) {
        const failure first = co_await failure_in(parallel.reduced());
        TUTTI_EXPECT(first.code != errc::success);
        const failure again = co_await failure_in(parallel.reduced());
        TUTTI_EXPECT(again.code == errc::communicator_failed);
      } else {
        parallel.ready(5);  // started, then dropped
      }
    }
    co_await world.barrier();
  });
}
