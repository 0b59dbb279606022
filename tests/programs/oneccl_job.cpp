// SPDX-License-Identifier: Apache-2.0
// One rank of a job with the real oneCCL: the conformance suite on memory of an emulated device, and every
// collective on host memory. Every result is checked.
//   tutti-run -n 3 oneccl_job
//   tutti-run --on-failure continue -n 3 oneccl_job die      the last rank is killed after the first collective
#define DOCTEST_CONFIG_IMPLEMENT  // for the macros in the suite's headers
#include "coll/conformance/movement.hpp"
#include "coll/conformance/reductions.hpp"
#include "gpu/device_memory.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <tutti/emulated.hpp>
#include <tutti/gpu.hpp>
#include <tutti/oneccl.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;
using tutti::task;
namespace gpu = tutti::gpu;

int wrong = 0;
void expect(bool right, const char* what, int rank) {
  if (right) return;
  ++wrong;
  std::printf("rank %d: %s is wrong\n", rank, what);
}

// The communicator and device of a rank.
struct place {
  communicator world;
  gpu::device device;
  gpu::stream stream;
};

task<place> open(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  gpu::open_options how;
  how.backend = gpu::backend::oneccl;
  co_await gpu::open(world, dev, how);
  co_return place{world, dev, gpu::stream(dev)};
}

std::vector<float> numbers(int rank, std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1);
  return v;
}

// Runs `op` by tutti on ordinary memory, and by oneCCL on pinned host memory. Both must give the same result.
template <class Op>
task<> same(place at, const char* what, std::size_t in_size, std::size_t out_size, Op op) {
  const int me = at.world.rank();
  std::vector<float> in = numbers(me, in_size), expected = numbers(me, out_size), got(out_size);
  gpu::pinned_buffer<float> a(at.device, in_size), b(at.device, out_size);
  const gpu::device_span<float> from(a.data(), in_size), to(b.data(), out_size);
  co_await at.stream.upload(from, in);
  co_await at.stream.upload(to, expected);
  co_await op(at.world, in, expected);
  co_await op(at.world, from, to, at.stream);
  co_await at.stream.download(got, to);
  const auto near = [](float x, float y) { return std::abs(x - y) < 1e-4F; };
  expect(std::equal(got.begin(), got.end(), expected.begin(), near), what, me);
}

task<> collectives(place at) {
  const std::size_t n = 1000, all = n * static_cast<std::size_t>(at.world.size());
  const int root = at.world.size() - 1;
  co_await same(at, "all_reduce", n, n,
                [](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, tutti::sum, s...); });
  co_await same(at, "avg", n, n,
                [](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, tutti::avg, s...); });
  co_await same(at, "premul_sum", n, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_reduce(i, o, tutti::premul_sum(0.5F), s...);
  });
  co_await same(at, "reduce", n, n, [root](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce(i, o, tutti::sum, root, s...);
  });
  co_await same(at, "reduce_scatter", all, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce_scatter(i, o, tutti::sum, s...);
  });
  co_await same(at, "broadcast", n, n,
                [root](auto& c, auto&, auto& x, auto&... s) { return c.broadcast(x, root, s...); });
  co_await same(at, "all_gather", n, all,
                [](auto& c, auto& i, auto& o, auto&... s) { return c.all_gather(i, o, s...); });
  co_await same(at, "all_to_all", all, all,
                [](auto& c, auto& i, auto& o, auto&... s) { return c.all_to_all(i, o, s...); });
  co_await same(at, "gather", n, all,
                [root](auto& c, auto& i, auto& o, auto&... s) { return c.gather(i, o, root, s...); });
  co_await same(at, "scatter", all, n,
                [root](auto& c, auto& i, auto& o, auto&... s) { return c.scatter(i, o, root, s...); });
}

// Groups of even and of odd ranks, each in reverse order.
task<> halves(place at) {
  const int me = at.world.rank();
  communicator half = co_await at.world.split(me % 2, -me);
  gpu::pinned_buffer<int> one(at.device, 1);
  one[0] = me;
  co_await half.all_reduce(gpu::device_span<int>(one.data(), 1), tutti::sum, at.stream);
  int sum = 0;
  for (int r = me % 2; r < at.world.size(); r += 2) sum += r;
  expect(one[0] == sum, "all_reduce of a half", me);
}

task<int> job(communicator world) {
  const place at = co_await open(world);
  const tutti::test::setting where{"shm", world.size(), ""};
  const tutti::test::device_memory memory(at.device);
  co_await tutti::test::movement::every_type(world, &where, &memory);
  co_await tutti::test::movement::every_size_and_root(world, &where, &memory);
  co_await tutti::test::reductions::every_type(world, &where, &memory);
  co_await tutti::test::reductions::every_size(world, &where, &memory);
  expect(memory.served_by(gpu::backend::oneccl) > 0, "the choice of oneCCL", world.rank());
  co_await collectives(at);
  co_await halves(at);
  co_await world.all_reduce(wrong, tutti::sum);
  if (world.rank() == 0)
    std::printf("oneCCL %d, %d ranks: %s\n", tutti::oneccl::version(), world.size(),
                wrong == 0 ? "all right" : "WRONG");
  co_return wrong == 0 ? 0 : 1;
}

task<int> drill(communicator world) {
  const place at = co_await open(world);
  gpu::device_buffer<float> a(at.device, 1000);
  co_await at.stream.fill(a, std::byte{0});
  co_await world.all_reduce(a, tutti::sum, at.stream);
  // A slow rank may be told in the barrier already.
  auto result = co_await tutti::as_result(world.barrier());
  const int mortal = world.size() - 1;
  if (world.rank() == mortal) ::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  if (!result.error) result = co_await tutti::as_result(world.all_reduce(a, tutti::sum, at.stream));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const bool told =
      (result.error == tutti::errc::peer_failed || result.error == tutti::errc::communicator_failed) &&
      result.message.find("rank " + std::to_string(mortal)) != std::string::npos;
  std::printf("rank %d: %s after %.0f ms: %s\n", world.rank(), told ? "told" : "NOT TOLD", took.count(),
              result.message.c_str());
  co_await at.stream.reached();
  co_return told ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return argc > 1 && std::string(argv[1]) == "die" ? tutti::run(drill) : tutti::run(job);
}
