// SPDX-License-Identifier: Apache-2.0
// Collectives and messages on devices, every way, against what they must give; their order towards streams,
// and how they end.
#include "gpu/backends.hpp"

#include <doctest/doctest.h>
#include <cmath>
#include <numeric>
#include <optional>
#include <tutti/gpu/device_communicator.hpp>
#include <tutti/tutti.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::communicator;
using tutti::errc;
using tutti::task;
using tutti::test::bench;
using tutti::test::on_each_backend;
namespace gpu = tutti::gpu;

template <class T>
T number(int rank, std::size_t i) {
  return static_cast<T>(static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 11 + 1));
}
template <class T>
std::vector<T> input(int rank, std::size_t n) {
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = number<T>(rank, i);
  return v;
}

gpu::communicator_options small_chunks() {
  gpu::communicator_options how;
  how.chunk_bytes = 4096;
  return how;
}

// One collective of `in` to `out`, both on the device, and what is there then.
template <class T>
struct exchange {
  gpu::device_communicator& comm;
  const gpu::stream& s;
  gpu::path way;
};

template <class T, class Make>
task<std::vector<T>> result_of(gpu::device_communicator comm, gpu::stream s, std::vector<T> in,
                               std::size_t out_count, Make make, gpu::path way) {
  const gpu::device dev = comm.on();
  gpu::device_buffer<T> a(dev, in.size()), b(dev, out_count);
  gpu::work up = tutti::start(s.upload(a, in));
  gpu::work wiped = tutti::start(s.fill(b, std::byte{0xee}));
  gpu::work w = tutti::start(make(comm, a, b, s).by(way));
  std::vector<T> out(out_count);
  if (dev.can().gate) {
    s.wait(w);  // whether it is in the device's hands or not
    co_await s.download(out, b);
    co_await w;
  } else {
    co_await w.enqueued();
    s.wait(w);
    co_await s.download(out, b);
  }
  co_return out;
}

template <class T>
task<> all_collectives(gpu::device_communicator comm, gpu::stream s, std::size_t n, gpu::path way) {
  const int ranks = comm.size(), me = comm.rank();
  const auto size = static_cast<std::size_t>(ranks);
  const auto sum_at = [&](std::size_t i) {
    float all = 0;
    for (int r = 0; r < ranks; ++r) all += static_cast<float>(number<T>(r, i));
    return static_cast<T>(all);
  };
  using comm_t = gpu::device_communicator&;
  using buf = gpu::device_buffer<T>&;
  using str = const gpu::stream&;

  const auto reduced = [](comm_t c, buf a, buf b, str in) { return c.all_reduce(a, b, tutti::sum, in); };
  std::vector<T> out = co_await result_of<T>(comm, s, input<T>(me, n), n, reduced, way);
  for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(out[i] == sum_at(i));

  const auto greatest = [](comm_t c, buf a, buf b, str in) { return c.all_reduce(a, b, tutti::max, in); };
  out = co_await result_of<T>(comm, s, input<T>(me, n), n, greatest, way);
  for (std::size_t i = 0; i < n; ++i) {
    T most = number<T>(0, i);
    for (int r = 1; r < ranks; ++r) most = std::max(most, number<T>(r, i));
    TUTTI_EXPECT(out[i] == most);
  }

  const int root = ranks - 1;
  const auto to_root = [root](comm_t c, buf a, buf b, str in) {
    return c.reduce(a, b, tutti::sum, root, in);
  };
  out = co_await result_of<T>(comm, s, input<T>(me, n), n, to_root, way);
  if (me == root)
    for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(out[i] == sum_at(i));

  const auto from_root = [root](comm_t c, buf a, buf, str in) { return c.broadcast(a, root, in); };
  {
    gpu::device_buffer<T> a(comm.on(), n);
    const std::vector<T> in = input<T>(me, n);
    co_await s.upload(a, in);
    gpu::device_buffer<T> unused;
    co_await from_root(comm, a, unused, s).by(way);
    out.assign(n, T{});
    co_await s.download(out, a);
    TUTTI_EXPECT(out == input<T>(root, n));
  }

  const auto gathered = [](comm_t c, buf a, buf b, str in) { return c.all_gather(a, b, in); };
  out = co_await result_of<T>(comm, s, input<T>(me, n), n * size, gathered, way);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < n; ++i)
      TUTTI_EXPECT(out[static_cast<std::size_t>(r) * n + i] == number<T>(r, i));

  const auto gathered_at = [root](comm_t c, buf a, buf b, str in) { return c.gather(a, b, root, in); };
  out = co_await result_of<T>(comm, s, input<T>(me, n), n * size, gathered_at, way);
  if (me == root)
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < n; ++i)
        TUTTI_EXPECT(out[static_cast<std::size_t>(r) * n + i] == number<T>(r, i));

  const auto scattered = [root](comm_t c, buf a, buf b, str in) { return c.scatter(a, b, root, in); };
  out = co_await result_of<T>(comm, s, input<T>(me, n * size), n, scattered, way);
  for (std::size_t i = 0; i < n; ++i)
    TUTTI_EXPECT(out[i] == number<T>(root, static_cast<std::size_t>(me) * n + i));

  const auto blocks = [](comm_t c, buf a, buf b, str in) { return c.reduce_scatter(a, b, tutti::sum, in); };
  out = co_await result_of<T>(comm, s, input<T>(me, n * size), n, blocks, way);
  for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(out[i] == sum_at(static_cast<std::size_t>(me) * n + i));

  const auto crossed = [](comm_t c, buf a, buf b, str in) { return c.all_to_all(a, b, in); };
  out = co_await result_of<T>(comm, s, input<T>(me, n * size), n * size, crossed, way);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < n; ++i)
      TUTTI_EXPECT(out[static_cast<std::size_t>(r) * n + i] ==
                   number<T>(r, static_cast<std::size_t>(me) * n + i));

  // In place.
  {
    gpu::device_buffer<T> a(comm.on(), n * size);
    const std::vector<T> in = input<T>(me, n * size);
    co_await s.upload(a, in);
    co_await comm.all_to_all(a, a, s).by(way);
    out.assign(n * size, T{});
    co_await s.download(out, a);
    for (int r = 0; r < ranks; ++r)
      for (std::size_t i = 0; i < n; ++i)
        TUTTI_EXPECT(out[static_cast<std::size_t>(r) * n + i] ==
                     number<T>(r, static_cast<std::size_t>(me) * n + i));
    co_await s.upload(a, in);
    co_await comm.all_reduce(a, tutti::sum, s).by(way);
    co_await s.download(out, a);
    for (std::size_t i = 0; i < n * size; ++i) TUTTI_EXPECT(out[i] == sum_at(i));
    co_await s.upload(a, in);
    const gpu::device_span<T> own = a.span().subspan(static_cast<std::size_t>(me) * n, n);
    co_await comm.reduce_scatter(a.span(), own, tutti::sum, s).by(way);
    co_await comm.all_gather(own, a.span(), s).by(way);
    co_await s.download(out, a);
    for (std::size_t i = 0; i < n * size; ++i) TUTTI_EXPECT(out[i] == sum_at(i));
  }
}

task<> conformance(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
  TUTTI_EXPECT(comm.size() == world.size() && comm.rank() == world.rank());
  std::vector<gpu::path> ways{gpu::path::staged};
  if (comm.can(gpu::path::one_device) && dev.can().kernels) ways.push_back(gpu::path::one_device);
  for (const gpu::path way : ways) {
    co_await all_collectives<float>(comm, s, 1, way);
    co_await all_collectives<float>(comm, s, 3001, way);
    co_await all_collectives<int>(comm, s, 1000, way);
    co_await all_collectives<tutti::bfloat16>(comm, s, 777, way);
  }
  co_await all_collectives<float>(comm, s, 0, gpu::path::automatic);
  co_await all_collectives<double>(comm, s, 100, gpu::path::automatic);
}

// Results are those of the CPU communicator, bit for bit.
task<> same_as_on_the_cpu(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
  const std::size_t n = 5000;
  std::vector<float> in(n);
  for (std::size_t i = 0; i < n; ++i)
    in[i] = std::sin(static_cast<float>(i * 31 + static_cast<std::size_t>(world.rank()) * 17)) * 1e3f;
  std::vector<tutti::bfloat16> half(n);
  for (std::size_t i = 0; i < n; ++i) half[i] = tutti::bfloat16(in[i]);
  gpu::device_buffer<float> a(dev, n);
  gpu::device_buffer<tutti::bfloat16> h(dev, n);
  std::vector<float> average = in, scaled = in, got(n);
  std::vector<tutti::bfloat16> half_average = half, half_got(n);
  co_await world.all_reduce(average, tutti::avg);
  co_await world.all_reduce(scaled, tutti::premul_sum(0.3f));
  co_await world.all_reduce(half_average, tutti::avg);
  std::vector<gpu::path> ways{gpu::path::staged};
  if (comm.can(gpu::path::one_device) && dev.can().kernels) ways.push_back(gpu::path::one_device);
  for (const gpu::path way : ways) {
    // The CPU chooses its order by size and ranks: of two ranks there is one only.
    const bool exact = world.size() == 2;
    const auto near = [exact](float x, float y) {
      return exact ? x == y : std::abs(x - y) <= 1e-3f * std::abs(y) + 1e-3f;
    };
    co_await s.upload(a, in);
    co_await comm.all_reduce(a, tutti::avg, s).by(way);
    co_await s.download(got, a);
    for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(near(got[i], average[i]));
    co_await s.upload(a, in);
    co_await comm.all_reduce(a, tutti::premul_sum(0.3f), s).by(way);
    co_await s.download(got, a);
    for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(near(got[i], scaled[i]));
    co_await s.upload(h, half);
    co_await comm.all_reduce(h, tutti::avg, s).by(way);
    co_await s.download(half_got, h);
    for (std::size_t i = 0; i < n; ++i)
      TUTTI_EXPECT(std::abs(static_cast<float>(half_got[i]) - static_cast<float>(half_average[i])) <=
                   0.01f * std::abs(static_cast<float>(half_average[i])) + 0.01f);
  }
}

// A callable of the program's own reduces staged.
task<> own_reductions(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
  gpu::device_buffer<int> a(dev, 2000);
  std::vector<int> v(2000, 1 << world.rank());
  co_await s.upload(a, v);
  const auto either = [](int x, int y) { return x | y; };
  co_await comm.all_reduce(a, either, s);
  co_await s.download(v, a);
  TUTTI_EXPECT(v[1999] == (1 << world.size()) - 1);
  if (comm.can(gpu::path::one_device)) {
    const auto refused =
        co_await tutti::test::failure_in(comm.all_reduce(a, either, s).by(gpu::path::one_device));
    TUTTI_EXPECT(refused.code == errc::not_supported);
  }
}

// Many at once, of several sizes, without waiting in between; the streams order all.
task<> many_in_flight(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev), other(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
  const float ranks = static_cast<float>(world.size());
  std::vector<gpu::device_buffer<float>> buffers;
  std::vector<gpu::work> works;
  for (std::size_t i = 0; i < 12; ++i) {
    const std::size_t n = 1 + i * 997;
    const std::vector<float> ones(n, static_cast<float>(i));
    gpu::device_buffer<float>& b = buffers.emplace_back(dev, n);
    gpu::work up = tutti::start(s.upload(b, ones));
    gpu::operation op = comm.all_reduce(b, tutti::sum, s);
    works.push_back(tutti::start(i % 3 == 0 ? std::move(op).by(gpu::path::staged) : std::move(op)));
  }
  // And each once more, after itself, on another stream.
  for (std::size_t i = 0; i < 12; ++i) {
    if (!dev.can().gate) co_await works[i].enqueued();
    other.wait(works[i]);
    works.push_back(tutti::start(comm.all_reduce(buffers[i], tutti::sum, other)));
  }
  for (gpu::work& w : works) co_await w;
  for (std::size_t i = 0; i < 12; ++i) {
    std::vector<float> out(buffers[i].size());
    co_await s.download(out, buffers[i]);
    TUTTI_EXPECT(out.back() == static_cast<float>(i) * ranks * ranks);
  }
}

task<> messages(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
  const int right = (world.rank() + 1) % world.size(),
            left = (world.rank() + world.size() - 1) % world.size();
  for (const std::size_t n : {std::size_t{0}, std::size_t{10}, std::size_t{30000}}) {
    gpu::device_buffer<int> a(dev, n), b(dev, n);
    const std::vector<int> in = input<int>(world.rank(), n);
    std::vector<int> out(n);
    gpu::work up = tutti::start(s.upload(a, in));
    gpu::work sending = tutti::start(comm.send(a, right, s, 3));
    const tutti::status got = co_await comm.recv(b, left, s, tutti::any_tag);
    TUTTI_EXPECT(got.source == left && got.tag == 3 && got.bytes == n * sizeof(int));
    co_await sending;
    co_await s.download(out, b);
    TUTTI_EXPECT(out == input<int>(left, n));
  }
  // In order, although the second is small and the first is not; and one that is too long.
  gpu::device_buffer<int> large(dev, 20000), little(dev, 5), first(dev, 20000), second(dev, 5), third(dev, 3);
  co_await s.fill(large, std::byte{1});
  co_await s.fill(little, std::byte{2});
  gpu::work one = tutti::start(comm.send(large, right, s)), two = tutti::start(comm.send(little, right, s)),
            three = tutti::start(comm.send(large, right, s));
  gpu::work got_one = tutti::start(comm.recv(first, left, s)),
            got_two = tutti::start(comm.recv(second, left, s));
  const auto too_long = co_await tutti::test::failure_in(comm.recv(third, tutti::any_source, s));
  TUTTI_EXPECT(too_long.code == errc::truncated);
  const tutti::status second_status = co_await got_two;
  TUTTI_EXPECT(second_status.bytes == 20);
  co_await got_one;
  co_await one;
  co_await two;
  co_await three;
  std::vector<int> out(20000);
  co_await s.download(out, first);
  TUTTI_EXPECT(out[19999] == 0x01010101);
}

task<> bad_arguments(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev);
  gpu::device_buffer<int> a(dev, 10), b(dev, 11);
  const auto wrong = [](gpu::operation op) { return tutti::test::failure_in(std::move(op)); };
  auto seen = co_await wrong(comm.all_reduce(a, b, tutti::sum, s));
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("all_reduce"));
  seen = co_await wrong(comm.broadcast(a, 99, s));
  TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("99"));
  seen = co_await wrong(comm.send(a, -3, s));
  TUTTI_EXPECT(seen.code == errc::invalid_argument);
  seen = co_await wrong(comm.all_to_all(b, b, s));
  TUTTI_EXPECT(world.size() == 1 || seen.code == errc::invalid_argument);
  seen = co_await wrong(gpu::device_communicator().all_reduce(a, tutti::sum, s));
  TUTTI_EXPECT(seen.code == errc::invalid_argument);
  seen = co_await wrong(comm.all_reduce(a, tutti::sum, gpu::stream()));
  TUTTI_EXPECT(seen.code == errc::invalid_argument);
  const gpu::device again = on->open(world);
  if (&again.state() != &dev.state()) {
    const gpu::stream foreign(again);
    seen = co_await wrong(comm.all_reduce(a, tutti::sum, foreign));
    TUTTI_EXPECT(seen.code == errc::invalid_argument && seen.says("once"));
  }
  co_await comm.all_reduce(a, tutti::sum, s);
}

task<> mismatches(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  for (const gpu::path way : {gpu::path::staged, gpu::path::one_device}) {
    gpu::device_communicator comm = co_await gpu::init(world, dev);
    if (!comm.can(way) || !dev.can().kernels) continue;
    gpu::device_buffer<int> a(dev, 10), b(dev, 20);
    const auto seen =
        co_await tutti::test::failure_in(comm.all_reduce(world.rank() == 0 ? a : b, tutti::sum, s).by(way));
    TUTTI_EXPECT(seen.code == errc::mismatch);
    co_await world.barrier();
  }
}

// Rank 0 gives up: the others hear of it.
task<> cancelled(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  for (const gpu::path way : {gpu::path::staged, gpu::path::one_device}) {
    gpu::device_communicator comm = co_await gpu::init(world, dev);
    if (!comm.can(way) || !dev.can().kernels) continue;
    gpu::device_buffer<int> a(dev, 100000);
    co_await world.barrier();
    // The last rank does not call it before the first has given up.
    if (world.rank() == 0) {
      const auto seen = co_await tutti::test::failure_in(
          tutti::with_timeout(comm.all_reduce(a, tutti::sum, s).by(way), 20ms));
      TUTTI_EXPECT(seen.code == errc::timed_out);
      int token = 1;
      for (int r = 1; r < world.size(); ++r) co_await world.send(token, r);
    } else {
      int token = 0;
      if (world.rank() == world.size() - 1) co_await world.recv(token, 0);
      const auto seen = co_await tutti::test::failure_in(comm.all_reduce(a, tutti::sum, s).by(way));
      TUTTI_EXPECT(seen.code != errc::success);
      if (world.rank() != world.size() - 1) co_await world.recv(token, 0);
    }
    co_await world.barrier();
  }
}

task<> device_fails(communicator world, bench* on) {
  if (!on->fail_after) co_return;  // of a GPU nobody can ask that
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
  gpu::device_buffer<int> a(dev, 20000);
  co_await s.fill(a, std::byte{0});
  co_await world.barrier();
  if (world.rank() == 0) on->fail_after(7, "it fell off the bus");
  co_await world.barrier();
  const auto seen = co_await tutti::test::failure_in(comm.all_reduce(a, tutti::sum, s).by(gpu::path::staged));
  TUTTI_EXPECT(seen.code != errc::success);
}

task<> dropped(communicator world, bench* on) {
  const gpu::device dev = on->open(world);
  const gpu::stream s(dev);
  gpu::device_buffer<int> a(dev, 20000);
  {
    gpu::device_communicator comm = co_await gpu::init(world, dev, small_chunks());
    gpu::work w = tutti::start(comm.all_reduce(a, tutti::sum, s));
    comm = gpu::device_communicator();
    // It was cancelled with the last handle, here or on another rank first, or it was fast.
    static_cast<void>(co_await tutti::test::failure_in(w.enqueued()));
    TUTTI_EXPECT(w.done());
  }
  co_await s.reached();
  co_await world.barrier();
}

}  // namespace

TEST_CASE("every collective, both ways, on 1 rank") { on_each_backend(1, conformance); }
TEST_CASE("every collective, both ways, on 2 ranks") { on_each_backend(2, conformance); }
TEST_CASE("every collective, both ways, on 3 ranks") { on_each_backend(3, conformance); }
TEST_CASE("results are those of the CPU") { on_each_backend(2, same_as_on_the_cpu); }
TEST_CASE("callables of the program's own reduce staged") { on_each_backend(2, own_reductions); }
TEST_CASE("many collectives are in flight") { on_each_backend(2, many_in_flight); }
TEST_CASE("messages of devices") { on_each_backend(2, messages); }
TEST_CASE("arguments that cannot be meant") { on_each_backend(2, bad_arguments); }
TEST_CASE("ranks that disagree are told") { on_each_backend(2, mismatches); }
TEST_CASE("a rank that gives up ends it for all") { on_each_backend(3, cancelled); }
TEST_CASE("a failing device ends the collective on all ranks") { on_each_backend(2, device_fails); }
TEST_CASE("the last handle ends what runs") { on_each_backend(2, dropped); }
