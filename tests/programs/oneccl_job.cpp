// SPDX-License-Identifier: Apache-2.0
// One rank of a job that uses the real oneCCL, on memory of the host and of an emulated device; every result
// is checked.
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <tutti/emulated.hpp>
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

float number(int rank, std::size_t i) {
  return static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1);
}

// On memory of the device, or of the host, as `span` gives it.
task<> collectives(communicator world, tutti::oneccl::communicator comm, gpu::stream s, bool on_host) {
  const gpu::device dev = comm.on();
  const int me = comm.rank(), ranks = comm.size(), root = ranks - 1;
  const std::size_t n = 1000, size = static_cast<std::size_t>(ranks), at = static_cast<std::size_t>(me) * n;
  gpu::device_buffer<float> device_in(dev, n * size), device_out(dev, n * size);
  gpu::pinned_buffer<float> host_in(dev, n * size), host_out(dev, n * size);
  const auto in = on_host ? gpu::device_span<float>(host_in.data(), n * size) : device_in.span();
  const auto out = on_host ? gpu::device_span<float>(host_out.data(), n * size) : device_out.span();
  std::vector<float> mine(n * size), got(n * size);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number(me, i);
  const auto sum_at = [ranks](std::size_t i) {
    float all = 0;
    for (int r = 0; r < ranks; ++r) all += number(r, i);
    return all;
  };
  co_await s.upload(in, mine);
  const auto first = in.first(n);
  const auto result = out.first(n);

  co_await comm.all_reduce(first, result, tutti::sum, s);
  co_await s.download(got, out);
  for (std::size_t i = 0; i < n; ++i) expect(got[i] == sum_at(i), "all_reduce", me);
  co_await comm.all_reduce(first, result, tutti::avg, s);
  co_await s.download(got, out);
  expect(std::abs(got[5] - sum_at(5) / static_cast<float>(ranks)) < 1e-4f, "avg", me);
  co_await comm.all_reduce(first, result, tutti::premul_sum(0.5f), s);
  co_await s.download(got, out);
  expect(got[6] == sum_at(6) / 2, "premul_sum", me);
  co_await comm.reduce(first, result, tutti::sum, root, s);
  co_await s.download(got, out);
  if (me == root) expect(got[999] == sum_at(999), "reduce", me);
  co_await comm.broadcast(result, root, s);
  co_await s.download(got, out);
  expect(got[999] == sum_at(999), "broadcast", me);
  co_await comm.all_gather(first, out, s);
  co_await s.download(got, out);
  for (std::size_t r = 0; r < size; ++r)
    expect(got[r * n + 7] == number(static_cast<int>(r), 7), "all_gather", me);
  co_await comm.reduce_scatter(in, result, tutti::sum, s);
  co_await s.download(got, out);
  for (std::size_t i = 0; i < n; ++i) expect(got[i] == sum_at(at + i), "reduce_scatter", me);
  co_await comm.all_to_all(in, out, s);
  co_await s.download(got, out);
  for (std::size_t r = 0; r < size; ++r)
    for (std::size_t i = 0; i < n; ++i)
      expect(got[r * n + i] == number(static_cast<int>(r), at + i), "all_to_all", me);
  co_await comm.gather(first, out, root, s);
  co_await s.download(got, out);
  if (me == root)
    for (std::size_t r = 0; r < size; ++r)
      expect(got[r * n + 8] == number(static_cast<int>(r), 8), "gather", me);
  co_await comm.scatter(in, result, root, s);
  co_await s.download(got, out);
  expect(got[9] == number(root, at + 9), "scatter", me);
  if (me == 0) co_await comm.send(first, 1, s);
  if (me == 1) {
    co_await comm.recv(result, 0, s);
    co_await s.download(got, out);
    expect(got[10] == number(0, 10), "recv", me);
  }
  co_await world.barrier();
}

// Of the ranks with even and with odd numbers, each in reverse order.
task<> halves(communicator world, tutti::oneccl::communicator comm, gpu::stream s) {
  tutti::oneccl::communicator half = co_await comm.split(world.rank() % 2, -world.rank());
  const int mine = world.rank() % 2, members = (world.size() + 1 - mine) / 2;
  expect(half.size() == members, "the size of a half", world.rank());
  expect(half.rank() == members - 1 - world.rank() / 2, "the rank in a half", world.rank());
  gpu::pinned_buffer<int> one(comm.on(), 1);
  one[0] = world.rank();
  co_await half.all_reduce(gpu::device_span<int>(one.data(), 1), tutti::sum, s);
  int sum = 0;
  for (int r = mine; r < world.size(); r += 2) sum += r;
  expect(one[0] == sum, "all_reduce of a half", world.rank());
  tutti::oneccl::communicator none = co_await comm.split(world.rank() == 0 ? -1 : 0, 0);
  expect(static_cast<bool>(none) == (world.rank() != 0), "no member", world.rank());
  co_await world.barrier();
}

task<int> job(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  tutti::oneccl::communicator comm = co_await tutti::oneccl::init(world, dev);
  co_await collectives(world, comm, s, false);
  co_await collectives(world, comm, s, true);
  co_await halves(world, comm, s);
  co_await world.all_reduce(wrong, tutti::sum);
  if (world.rank() == 0)
    std::printf("oneCCL %d, %d ranks: %s\n", tutti::oneccl::version(), world.size(),
                wrong == 0 ? "all right" : "WRONG");
  co_return wrong == 0 ? 0 : 1;
}

task<int> drill(communicator world) {
  const gpu::device dev = tutti::emulated::open(world);
  const gpu::stream s(dev);
  tutti::oneccl::communicator comm = co_await tutti::oneccl::init(world, dev);
  gpu::device_buffer<float> a(dev, 1000);
  co_await s.fill(a, std::byte{0});
  co_await comm.all_reduce(a, tutti::sum, s);
  co_await world.barrier();
  if (world.rank() == world.size() - 1) ::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  const auto result = co_await tutti::as_result(comm.all_reduce(a, tutti::sum, s));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const bool told =
      result.error == tutti::errc::peer_failed || result.error == tutti::errc::communicator_failed;
  std::printf("rank %d: %s after %.0f ms: %s\n", world.rank(), told ? "told" : "NOT TOLD", took.count(),
              result.message.c_str());
  co_await s.reached();
  co_return told ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return argc > 1 && std::string(argv[1]) == "die" ? tutti::run(drill) : tutti::run(job);
}
