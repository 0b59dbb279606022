// SPDX-License-Identifier: Apache-2.0
// Averaging in buckets on devices gives what one all_reduce gives: wherever gradients lie, in whatever order
// they are ready, on one stream or several, and while the stream that computes them still runs.
#include "gpu/backends.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tutti/gpu/data_parallel.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/tutti.hpp>

namespace {

using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::bench;
using tutti::test::on_each_backend;
namespace gpu = tutti::gpu;

const std::vector<std::size_t> sizes{5, 300, 1, 64, 1000, 7};

// Gradient i of rank `rank` in that step.
std::vector<float> part(int rank, std::size_t step, std::size_t i) {
  tutti::test::random_numbers random(1000 * step + 10 * i + static_cast<std::size_t>(rank) + 1);
  std::vector<float> values(sizes[i]);
  for (float& v : values) v = static_cast<float>(random.below(2000)) / 7 - 100;
  return values;
}
// The average (or sum) over all ranks.
std::vector<double> expected(int ranks, std::size_t step, std::size_t i, bool sum) {
  std::vector<double> all(sizes[i]);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> values = part(r, step, i);
    for (std::size_t k = 0; k < all.size(); ++k) all[k] += static_cast<double>(values[k]) / (sum ? 1 : ranks);
  }
  return all;
}

// Gradients in one buffer, or each in its own.
struct model {
  model(const gpu::device& on, bool together) {
    if (together) buffers.emplace_back(on, std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    std::size_t at = 0;
    for (const std::size_t n : sizes) {
      if (!together) buffers.emplace_back(on, n);
      spans.push_back(together ? buffers[0].span().subspan(at, n) : buffers.back().span());
      at += n;
      if (together) {
        gradients.emplace_back(spans.back());  // borrowed
      } else {
        gradients.emplace_back(buffers.back());
      }
    }
  }
  std::vector<gpu::device_buffer<float>> buffers;
  std::vector<gpu::device_span<float>> spans;
  std::vector<gpu::device_values> gradients;
};

gpu::data_parallel_options small_buckets() {
  gpu::data_parallel_options o;
  o.first_bucket_bytes = 16;
  o.bucket_bytes = 2000;
  return o;
}

enum class order { backward, forward, rotated, never };

task<> check(communicator world, const model* m, gpu::stream s, std::size_t step, bool sum,
             double tolerance) {
  std::vector<gpu::device_values> all = m->gradients;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<float> got(sizes[i]);
    co_await s.download(got, m->spans[i]);
    const std::vector<double> right = expected(world.size(), step, i, sum);
    for (std::size_t k = 0; k < got.size(); ++k)
      TUTTI_EXPECT(std::abs(static_cast<double>(got[k]) - right[k]) <= tolerance * (sum ? world.size() : 1));
  }
  const tutti::replica_check same = co_await gpu::compare_replicas(world, all, s);
  TUTTI_EXPECT(same.agree());
}

struct way {
  bool together = false;
  bool sum = false;
  order in = order::backward;
  bool two_streams = false;
  std::function<std::shared_ptr<tutti::bucketing::any_gradient_hook>()> hook;
  double tolerance = 1e-4;
};

task<> averages(communicator world, gpu::device dev, way how) {
  const gpu::stream compute(dev), other(dev);
  model m(dev, how.together);
  co_await gpu::open(world, dev);
  gpu::data_parallel_options o = small_buckets();
  o.sum = how.sum;
  if (how.hook) o.hook = how.hook();
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients, o);
  TUTTI_EXPECT(parallel.buckets() == 3);  // {7}, {1000}, {64, 1, 300, 5}
  const std::size_t n = sizes.size();
  for (std::size_t step = 0; step < 2; ++step) {
    for (std::size_t k = 0; k < n && how.in != order::never; ++k) {
      const std::size_t i = how.in == order::backward  ? n - 1 - k
                            : how.in == order::forward ? k
                                                       : (k + static_cast<std::size_t>(world.rank())) % n;
      const gpu::stream& s = how.two_streams && i % 2 == 1 ? other : compute;
      tutti::request computing = tutti::start(s.upload(m.spans[i], part(world.rank(), step, i)));
      parallel.ready(i, s);
    }
    if (how.in == order::never)
      for (std::size_t i = 0; i < n; ++i) co_await compute.upload(m.spans[i], part(world.rank(), step, i));
    co_await parallel.reduced(compute);
    co_await check(world, &m, compute, step, how.sum, how.tolerance);
  }
  if (how.two_streams) co_await other.reached();
}

task<> every_way(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  for (const bool together : {true, false}) {
    way how;
    how.together = together;
    how.sum = together;
    for (const order in : {order::backward, order::forward, order::rotated, order::never}) {
      how.in = in;
      how.two_streams = in != order::never;
      co_await averages(world, dev, how);
    }
  }
}

task<> every_hook(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  for (const bool sum : {true, false}) {
    way how;
    how.sum = sum;
    how.together = !sum;
    how.hook = &gpu::identity_hook;
    co_await averages(world, dev, how);
    how.hook = &gpu::float16_hook;
    how.tolerance = 0.2;  // values up to 200 in 11 bits, rounded on each rank and as a sum
    co_await averages(world, dev, how);
    how.hook = &gpu::bfloat16_hook;
    how.tolerance = 1.6;  // in 8 bits
    co_await averages(world, dev, how);
    how.hook = &tutti::bfloat16_hook;
    co_await averages(world, dev, how);
    how.hook = [] { return tutti::int8_hook({.error_feedback = false}); };
    how.tolerance = 200.0 / 125;
    co_await averages(world, dev, how);
  }
}

// Records the buckets that have been averaged on the device.
class watched_hook final : public gpu::gradient_hook {
 public:
  task<> reduce(communicator c, gpu::gradient_bucket bucket, gpu::stream in) override {
    co_await inner->reduce(c, bucket, in);
    co_await in.reached();
    averaged.push_back(bucket.index);
  }
  std::shared_ptr<gpu::gradient_hook> inner = gpu::identity_hook();
  std::vector<std::size_t> averaged;
};

// Sees matrices where the program has registered them.
class shapes_hook final : public tutti::gradient_hook {
 public:
  task<> reduce(communicator c, tutti::gradient_bucket bucket) override {
    for (const tutti::gradient_view& g : bucket.gradients) rows.push_back(g.rows);
    co_await c.all_reduce(bucket.data, tutti::avg);
  }
  std::vector<std::size_t> rows;
};

task<> matrices(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  co_await gpu::open(world, dev);
  gpu::device_buffer<float> matrix(dev, 600), vector(dev, 7);
  const std::vector<gpu::device_values> gradients{gpu::device_values(matrix, 20), vector};
  const auto hook = std::make_shared<shapes_hook>();
  gpu::data_parallel_options o;
  o.hook = hook;
  gpu::data_parallel exact = co_await gpu::data_parallel::create(world, gradients, o);
  co_await exact.reduced(s);
  TUTTI_EXPECT((hook->rows == std::vector<std::size_t>{20, 1}));
  // A matrix of rank one is approximated exactly.
  tutti::low_rank_options low;
  low.rank = 1;
  low.exact_steps = 0;
  o.hook = tutti::low_rank_hook(low);
  gpu::data_parallel approximate = co_await gpu::data_parallel::create(world, gradients, o);
  std::vector<float> values(600), got(600);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((1 + i / 30) * (1 + i % 30) * static_cast<std::size_t>(world.rank() + 1));
  co_await s.upload(matrix, values);
  co_await approximate.reduced(s);
  co_await s.download(got, matrix);
  const float factor = static_cast<float>(world.size() + 1) / 2 / static_cast<float>(world.rank() + 1);
  for (std::size_t i = 0; i < got.size(); ++i) TUTTI_EXPECT(std::abs(got[i] - factor * values[i]) < 0.1F);
}

task<> while_backward_goes_on(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  if (!dev.can().gate) co_return;
  const gpu::stream compute(dev), look(dev);
  model m(dev, false);
  co_await gpu::open(world, dev);
  auto hook = std::make_shared<watched_hook>();
  gpu::data_parallel_options o;
  o.first_bucket_bytes = o.bucket_bytes = 1;
  o.hook = hook;
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients, o);
  for (std::size_t step = 0; step < 2; ++step) {
    hook->averaged.clear();
    tutti::request last = tutti::start(compute.upload(m.spans[5], part(world.rank(), step, 5)));
    parallel.ready(5, compute);
    // The gate delays the rest of the backward pass until the average of that gradient is there.
    gpu::gate closed = compute.close();
    std::vector<tutti::request> rest;
    for (std::size_t i = 5; i-- > 0;) {
      rest.push_back(tutti::start(compute.upload(m.spans[i], part(world.rank(), step, i))));
      parallel.ready(i, compute);
    }
    const auto until = std::chrono::steady_clock::now() + tutti::test::patience;
    while (hook->averaged.empty() && std::chrono::steady_clock::now() < until) co_await look.reached();
    TUTTI_EXPECT(hook->averaged == std::vector<std::size_t>{0});
    co_await last;  // the loop may not have polled it yet
    TUTTI_EXPECT(!rest.front().done());
    closed.open();
    co_await parallel.reduced(compute);
    TUTTI_EXPECT(hook->averaged.size() == 6);
    co_await check(world, &m, compute, step, false, 1e-4);
  }
}

task<> accumulation(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream compute(dev);
  model m(dev, false);
  co_await gpu::open(world, dev);
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients, small_buckets());
  for (std::size_t step = 0; step < 2; ++step) {
    {
      const auto guard = parallel.no_sync();
      for (int pass = 0; pass < 3; ++pass)
        for (std::size_t i = 0; i < sizes.size(); ++i) parallel.ready(i, compute);
      const auto inside = co_await tutti::test::failure_in(parallel.reduced(compute));
      TUTTI_EXPECT(inside.code == errc::invalid_argument && inside.says("no_sync"));
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      co_await compute.upload(m.spans[i], part(world.rank(), step, i));
      parallel.ready(i, compute);
    }
    co_await parallel.reduced(compute);
    co_await check(world, &m, compute, step, false, 1e-4);
  }
}

// Each rank has as many batches as its number + 1, with that number as the weight of its gradients.
task<> uneven_batches(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream compute(dev);
  co_await gpu::open(world, dev);
  for (const bool hooked : {false, true}) {
    model m(dev, hooked);
    gpu::data_parallel_options o = small_buckets();
    o.uneven = true;
    if (hooked) o.hook = gpu::identity_hook();
    gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients, o);
    const auto is_average = [](const std::vector<float>& got, int step, int size) {
      double sum = 0, weights = 0;
      for (int r = step; r < size; ++r) {
        sum += (r + 1) * (10.0 * r + step);
        weights += r + 1;
      }
      return std::all_of(got.begin(), got.end(),
                         [&](float v) { return std::abs(static_cast<double>(v) - sum / weights) < 1e-4; });
    };
    int step = 0;
    bool more = true;
    for (; more; ++step) {
      if (step <= world.rank()) {
        parallel.begin_step(world.rank() + 1);
        const auto mine = static_cast<float>(10 * world.rank() + step);
        for (std::size_t i = sizes.size(); i-- > 0;) {
          co_await compute.upload(m.spans[i], std::vector<float>(sizes[i], mine));
          parallel.ready(i, compute);
        }
        co_await parallel.reduced(compute);
      } else {
        more = co_await parallel.join_step(compute);
        if (!more) break;
      }
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        std::vector<float> got(sizes[i]);
        co_await compute.download(got, m.spans[i]);
        TUTTI_EXPECT(is_average(got, step, world.size()));
      }
      TUTTI_EXPECT(parallel.last().bytes == 1377 * sizeof(float));
    }
    TUTTI_EXPECT(step == world.size());
    // A gradient of weight 0 is left out.
    const bool none = world.rank() == 1;
    parallel.begin_step(none ? 0 : 3);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const float value = none ? std::numeric_limits<float>::quiet_NaN() : 2;
      co_await compute.upload(m.spans[i], std::vector<float>(sizes[i], value));
      parallel.ready(i, compute);
    }
    co_await parallel.reduced(compute);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<float> got(sizes[i]);
      co_await compute.download(got, m.spans[i]);
      TUTTI_EXPECT(std::ranges::all_of(got, [](float v) { return std::abs(v - 2) < 1e-5F; }));
    }
  }
}

// Weights are numbers of samples: their products with gradients are beyond float16.
task<> large_weights(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream compute(dev);
  co_await gpu::open(world, dev);
  gpu::device_buffer<tutti::float16> gradient(dev, 100);
  gpu::data_parallel_options o;
  o.uneven = true;
  std::vector<gpu::device_values> gradients;
  gradients.emplace_back(gradient);
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, gradients, o);
  parallel.begin_step(1000 * (world.rank() + 1));
  const std::vector<tutti::float16> mine(gradient.size(),
                                         tutti::float16(100.0F * static_cast<float>(world.rank())));
  co_await compute.upload(gradient, mine);
  parallel.ready(0, compute);
  co_await parallel.reduced(compute);
  std::vector<tutti::float16> got(gradient.size());
  co_await compute.download(got, gradient);
  double sum = 0, weights = 0;
  for (int r = 0; r < world.size(); ++r) {
    sum += (r + 1) * 100.0 * r;
    weights += r + 1;
  }
  for (const tutti::float16 v : got) TUTTI_EXPECT(std::abs(static_cast<float>(v) - sum / weights) < 0.5);
}

task<> of_several_types(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<double> wide(dev, 10);
  gpu::device_buffer<tutti::bfloat16> narrow(dev, 9);
  gpu::device_buffer<float> usual(dev, 8), more(dev, 3);
  for (const bool compressed : {false, true}) {
    co_await gpu::open(world, dev);
    const std::vector<gpu::device_values> gradients{wide, narrow, usual, more};
    gpu::data_parallel_options o;
    if (compressed) o.hook = gpu::float16_hook();
    gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, gradients, o);
    TUTTI_EXPECT(parallel.buckets() == 3);
    const auto mine = static_cast<float>(world.rank() + 1), mean = static_cast<float>(world.size() + 1) / 2;
    co_await s.upload(wide, std::vector<double>(10, static_cast<double>(mine)));
    co_await s.upload(narrow, std::vector<tutti::bfloat16>(9, tutti::bfloat16(mine)));
    co_await s.upload(usual, std::vector<float>(8, mine));
    co_await s.upload(more, std::vector<float>(3, 2 * mine));
    co_await parallel.reduced(s);
    std::vector<double> got_wide(10);
    std::vector<tutti::bfloat16> got_narrow(9);
    std::vector<float> got_usual(8), got_more(3);
    co_await s.download(got_wide, wide);
    co_await s.download(got_narrow, narrow);
    co_await s.download(got_usual, usual);
    co_await s.download(got_more, more);
    TUTTI_EXPECT(std::abs(got_wide[9] - static_cast<double>(mean)) < 1e-2 &&
                 static_cast<float>(got_narrow[8]) == mean);
    TUTTI_EXPECT(std::abs(got_usual[7] - mean) < 1e-2F && std::abs(got_more[2] - 2 * mean) < 1e-2F);
  }
}

task<> initial_state(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  model m(dev, false);
  co_await gpu::open(world, dev);
  const gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients);
  for (std::size_t i = 0; i < sizes.size(); ++i) co_await s.upload(m.spans[i], part(world.rank(), 0, i));
  const tutti::replica_check before = co_await gpu::compare_replicas(world, m.gradients, s);
  TUTTI_EXPECT(!before.agree());
  const int root = world.size() - 1;
  co_await parallel.broadcast(m.gradients, root, s);
  std::vector<std::vector<float>> on_host;
  std::vector<std::span<const float>> pieces;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    on_host.emplace_back(sizes[i]);
    co_await s.download(on_host[i], m.spans[i]);
    TUTTI_EXPECT(on_host[i] == part(root, 0, i));
    pieces.emplace_back(on_host[i]);
  }
  const tutti::replica_check after = co_await gpu::compare_replicas(world, m.gradients, s);
  const tutti::replica_check host = co_await tutti::compare_replicas(world, pieces);
  TUTTI_EXPECT(after.agree() && after.hash == host.hash);
  // Changes one bit on one rank.
  if (world.rank() == 1) {
    on_host[4][999] = -on_host[4][999];
    co_await s.upload(m.spans[4], on_host[4]);
  }
  const tutti::replica_check differ = co_await gpu::compare_replicas(world, m.gradients, s);
  TUTTI_EXPECT(differ.differ == std::vector<int>{1});
}

task<> invalid_calls(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  co_await gpu::open(world, dev);
  gpu::device_buffer<float> a(dev, 10), b(dev, world.rank() == 1 ? 21 : 20), none(dev, 0);
  const auto with = [&](std::vector<gpu::device_values> gradients) {
    return tutti::test::failure_in(gpu::data_parallel::create(world, std::move(gradients)));
  };
  std::vector<gpu::device_values> gradients;
  auto seen = co_await with(gradients);
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("no gradients"));
  gradients.emplace_back(none);
  seen = co_await with(gradients);
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("gradient 0"));
  gradients = {a, b};
  seen = co_await with(gradients);
  TUTTI_EXPECT(seen.code == errc::mismatch && seen.says("rank 1 registered"));

  gradients = {a};
  gpu::data_parallel_options of_host;
  of_host.hook = tutti::identity_hook();
  const std::vector<gpu::device_values> wide{gpu::device_buffer<double>(dev, 3)};
  seen = co_await tutti::test::failure_in(gpu::data_parallel::create(world, wide, of_host));
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("floats only"));
  std::vector<float> on_host(10);
  const std::vector<tutti::gradient_view> views{tutti::gradient_view(on_host)};
  of_host.hook = gpu::identity_hook();
  seen = co_await tutti::test::failure_in(tutti::data_parallel::create(world, views, of_host));
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("memory of a device"));
  if (world.rank() == 0) of_host.hook = tutti::identity_hook();
  seen = co_await tutti::test::failure_in(tutti::data_parallel::create(world, views, of_host));
  TUTTI_EXPECT(seen.code == errc::mismatch && seen.says("a hook of the same kind"));
  of_host.hook = nullptr;
  tutti::data_parallel plain = co_await tutti::data_parallel::create(world, views, of_host);
  TUTTI_EXPECT(tutti::test::failure_of([&] { plain.ready(0, s); }).code == errc::invalid_argument);
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, gradients);
  const auto refused = [&](auto call) {
    return tutti::test::failure_of(call).code == errc::invalid_argument;
  };
  co_await s.fill(a, std::byte{0});
  TUTTI_EXPECT(refused([&] { parallel.ready(1, s); }));
  TUTTI_EXPECT(refused([&] { parallel.ready(0, gpu::stream()); }));
  TUTTI_EXPECT(refused([&] { parallel.ready(0); }));
  seen = co_await tutti::test::failure_in(parallel.reduced());
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("name a stream"));
  parallel.ready(0, s);
  TUTTI_EXPECT(refused([&] { parallel.ready(0, s); }));
  gpu::data_parallel empty;
  TUTTI_EXPECT(refused([&] { empty.ready(0, s); }));
  gpu::data_parallel moved = std::move(parallel);
  co_await moved.reduced(s);
  moved.ready(0, s);  // of the next step
  co_await moved.reduced(s);
}

// One rank leaves in the middle of a step: the others get errors, then and later.
task<> a_rank_goes(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  model m(dev, true);
  co_await s.fill(m.buffers[0], std::byte{0});
  {
    co_await gpu::open(world, dev);
    gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients, small_buckets());
    if (world.rank() == 1) {
      parallel.ready(5, s);
    } else {
      const auto first = co_await tutti::test::failure_in(parallel.reduced(s));
      TUTTI_EXPECT(first.code != errc::success);
      const auto again = co_await tutti::test::failure_in(parallel.reduced(s));
      TUTTI_EXPECT(again.code == errc::communicator_failed);
    }
  }
  co_await world.barrier();
  co_await s.reached();
}

task<> a_device_fails(communicator world, bench* on) {
  if (!on->fail_after) co_return;  // a GPU cannot be made to fail
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  model m(dev, false);
  co_await gpu::open(world, dev);
  gpu::data_parallel parallel = co_await gpu::data_parallel::create(world, m.gradients, small_buckets());
  co_await world.barrier();
  if (world.rank() == 0) on->fail_after(3, "it fell off the bus");
  co_await world.barrier();
  // The failure shows while the step is enqueued, or in the stream.
  auto seen = co_await tutti::test::failure_in(parallel.reduced(s));
  if (seen.code == errc::success) seen = co_await tutti::test::failure_in(s.reached());
  TUTTI_EXPECT(seen.code != errc::success);
}

}  // namespace

TEST_CASE("gradients are averaged, wherever they lie, in whatever order they are ready") {
  on_each_backend(2, every_way);
}
TEST_CASE("of three ranks, and of one") {
  on_each_backend(3, initial_state);
  on_each_backend(1, accumulation);
}
TEST_CASE("hooks: exactly, and in half the bytes") { on_each_backend(2, every_hook); }
TEST_CASE("hooks of the host get matrices") { on_each_backend(2, matrices); }
TEST_CASE("a bucket is averaged while the stream still computes the rest") {
  on_each_backend(2, while_backward_goes_on);
}
TEST_CASE("gradients add up without averaging, and then with it") { on_each_backend(2, accumulation); }
TEST_CASE("ranks that run out of batches take part until the last has") {
  on_each_backend(3, uneven_batches);
}

TEST_CASE("weighted averages of float16 stay in its range") { on_each_backend(3, large_weights); }
TEST_CASE("gradients of several types") { on_each_backend(2, of_several_types); }
TEST_CASE("invalid calls are refused, on all ranks") { on_each_backend(2, invalid_calls); }
TEST_CASE("a rank that goes ends the step on all") { on_each_backend(3, a_rank_goes); }
TEST_CASE("a failing device ends the step on all ranks") { on_each_backend(2, a_device_fails); }
