// SPDX-License-Identifier: Apache-2.0
// The sharded optimiser on memory of devices: parameters and state are those of one process.
#include "gpu/backends.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <tutti/gpu/memory.hpp>
#include <tutti/train/sharded.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;
using tutti::task;
using tutti::test::bench;
using tutti::test::on_each_backend;
namespace gpu = tutti::gpu;
using values = gpu::device_span<float>;

// Steps a share: momentum of 1/2, rate 1/8. The host computes; a program would launch a kernel.
task<> momentum_step(gpu::stream s, values parameters, values gradient, values momentum) {
  const std::size_t n = parameters.size();
  std::vector<float> p(n), g(n), m(n);
  co_await s.download(p, parameters);
  co_await s.download(g, gradient);
  co_await s.download(m, momentum);
  for (std::size_t k = 0; k < n; ++k) {
    m[k] = m[k] / 2 + g[k];
    p[k] -= m[k] / 8;
  }
  co_await s.upload(parameters, p);
  co_await s.upload(momentum, m);
}

task<> equals_one_process(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  co_await gpu::open(world, dev);
  const gpu::stream compute(dev);
  const std::vector<std::size_t> sizes{64, 5, 300};  // pieces that two ranks divide evenly, and not
  gpu::device_buffer<float> parameters(dev, 369), gradient(dev, 369);
  std::vector<float> one(369), one_momentum(369), ramp(369);
  for (std::size_t k = 0; k < one.size(); ++k) one[k] = static_cast<float>(k);
  if (world.rank() == 0) co_await compute.upload(parameters, one);
  std::vector<tutti::sharded_piece<values>> pieces;
  for (std::size_t i = 0, at = 0; i < sizes.size(); at += sizes[i++])
    pieces.push_back({parameters.span().subspan(at, sizes[i]), gradient.span().subspan(at, sizes[i])});
  auto optimiser = co_await tutti::sharded<values, gpu::stream>::create(world, pieces, compute);
  gpu::device_buffer<float> momentum(dev, optimiser.own_elements());
  co_await compute.fill(momentum, std::byte{0});

  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = sizes.size(), end = 369; i-- > 0; end -= sizes[i]) {
      for (std::size_t k = end - sizes[i]; k < end; ++k)
        ramp[k] = static_cast<float>((static_cast<int>(k) % 7 + step) * (2 * world.rank() + 1));
      const std::vector<float> part(ramp.begin() + static_cast<std::ptrdiff_t>(end - sizes[i]),
                                    ramp.begin() + static_cast<std::ptrdiff_t>(end));
      tutti::request computing = tutti::start(compute.upload(pieces[i].gradient, part));
      optimiser.ready(i);  // after the upload, which has not ended
      co_await computing;
    }
    for (std::size_t i = sizes.size(); i-- > 0;) {
      const tutti::shard<values> own = co_await optimiser.reduced(i);
      co_await momentum_step(compute, own.parameters, own.gradient,
                             momentum.span().subspan(own.offset, own.parameters.size()));
    }
    optimiser.gather();
    co_await optimiser.gathered();
    for (std::size_t k = 0; k < one.size(); ++k) {
      one_momentum[k] = one_momentum[k] / 2 + static_cast<float>(static_cast<int>(k) % 7 + step) * 2;
      one[k] -= one_momentum[k] / 8;
    }
  }
  std::vector<float> got(369);
  co_await compute.download(got, parameters);
  TUTTI_EXPECT(got == one);

  gpu::device_buffer<float> whole(dev, world.rank() == 0 ? 369 : 1);
  co_await optimiser.gather_state(momentum, whole, 0);
  if (world.rank() == 0) {
    co_await compute.download(got, whole);
    TUTTI_EXPECT(got == one_momentum);
  }
  co_await compute.fill(momentum, std::byte{0});
  co_await optimiser.scatter_state(whole, momentum, 0);
  std::vector<float> mine(optimiser.own_elements());
  co_await compute.download(mine, momentum);
  TUTTI_EXPECT(mine[0] == one_momentum[world.rank() == 0 ? 0 : 32]);
}

}  // namespace

TEST_CASE("sharded: the parameters and the state of one process, in memory of devices") {
  on_each_backend(2, equals_one_process);
}
