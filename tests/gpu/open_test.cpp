// SPDX-License-Identifier: Apache-2.0
// Operations of tutti::communicator on device memory give the same results as on host memory, in every form,
// and end in the same ways.
#include "gpu/backends.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tutti/cuda.hpp>
#include <tutti/emulated.hpp>
#include <tutti/gpu.hpp>
#include <tutti/tutti.hpp>
#include <type_traits>
#include <vector>

namespace {

using namespace std::chrono_literals;
using tutti::any_tag;
using tutti::communicator;
using tutti::errc;
using tutti::request;
using tutti::status;
using tutti::task;
using tutti::test::bench;
using tutti::test::even_collectives;
using tutti::test::numbers;
using tutti::test::on_each_backend;
using tutti::test::place;
using tutti::test::with;
namespace gpu = tutti::gpu;

task<place> open(communicator world, bench* on, gpu::open_options how = gpu::open_options()) {
  return tutti::test::open_on(world, on->open(world), how);
}

task<> every_collective(place at, std::size_t n) {
  const auto ranks = static_cast<std::size_t>(at.world.size());
  const int root = at.world.size() - 1;
  std::vector<std::size_t> counts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) counts[r] = n / 2 + r;
  const std::size_t mine = counts[static_cast<std::size_t>(at.world.rank())];
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::span<const std::size_t> each(counts);

  co_await even_collectives(at, n);
  co_await same_in_place(at, n,
                         [](auto& c, auto& x, auto&... s) { return c.all_reduce(x, tutti::avg, s...); });
  co_await same_in_place(at, n, [](auto& c, auto& x, auto&... s) { return c.scan(x, x, tutti::sum, s...); });
  const auto difference = [](float a, float b) { return a - b; };
  co_await same(at, n, n,
                [=](auto& c, auto& i, auto& o, auto&... s) { return c.all_reduce(i, o, difference, s...); });
  co_await same(at, n, n,
                [](auto& c, auto& i, auto& o, auto&... s) { return c.scan(i, o, tutti::sum, s...); });
  co_await same(at, n, n, [](auto& c, auto& i, auto& o, auto&... s) {
    return c.exclusive_scan(i, o, tutti::sum, s...);
  });
  co_await same(at, all, mine,
                [=](auto& c, auto& i, auto& o, auto&... s) { return c.scatter_v(i, each, o, root, s...); });
  co_await same(at, mine, all,
                [=](auto& c, auto& i, auto& o, auto&... s) { return c.gather_v(i, o, each, root, s...); });
  co_await same(at, mine, all,
                [=](auto& c, auto& i, auto& o, auto&... s) { return c.all_gather_v(i, o, each, s...); });
  co_await same(at, all, mine, [=](auto& c, auto& i, auto& o, auto&... s) {
    return c.reduce_scatter_v(i, each, o, tutti::sum, s...);
  });
  // This rank sends `mine` elements to each rank, and receives `counts[j]` from rank j.
  const std::vector<std::size_t> same_to_all(ranks, mine);
  const std::span<const std::size_t> to_each(same_to_all);
  co_await same(at, mine * ranks, all, [=](auto& c, auto& i, auto& o, auto&... s) {
    return c.all_to_all_v(i, to_each, o, each, s...);
  });
  co_await at.world.barrier(at.stream);
}

task<> lists_and_chunks(place at) {
  const int me = at.world.rank(), ranks = at.world.size();
  const float total = static_cast<float>(ranks * (ranks + 1) / 2);
  gpu::device_buffer<float> a(at.device, 100), b(at.device, 3000);
  const std::vector<float> ones(3000, static_cast<float>(me + 1));
  std::vector<float> out(3000);
  co_await at.stream.upload(a, std::span(ones).first(100));
  co_await at.stream.upload(b, ones);
  std::vector<gpu::device_span<float>> list = {a, b};
  co_await at.world.all_reduce(list, tutti::sum, at.stream);
  co_await at.stream.download(out, b);
  TUTTI_EXPECT(out == std::vector<float>(3000, total));
  co_await at.stream.download(std::span(out).first(100), a);
  TUTTI_EXPECT(out == std::vector<float>(3000, total));

  co_await at.stream.upload(b, ones);
  auto chunks = at.world.all_reduce_chunks(b, tutti::sum, 700, at.stream);
  std::size_t seen = 0;
  for (;;) {
    std::optional<gpu::device_span<float>> chunk = co_await chunks.next();
    if (!chunk) break;
    TUTTI_EXPECT(chunk->data() == b.data() + seen);
    seen += chunk->size();
  }
  TUTTI_EXPECT(seen == 3000);
  co_await at.stream.download(out, b);
  TUTTI_EXPECT(out == std::vector<float>(3000, total));
}

task<> messages(place at) {
  const int me = at.world.rank(), ranks = at.world.size();
  const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
  gpu::device_buffer<float> out(at.device, 5000), in(at.device, 6000);
  std::vector<float> got(6000);
  co_await at.stream.upload(out, numbers(me, 5000));
  tutti::request sending = at.world.isend(out, right, 3, at.stream);
  const tutti::status found = co_await at.world.probe(tutti::any_source, 3, at.stream);
  TUTTI_EXPECT(found.source == left);
  TUTTI_EXPECT(found.bytes == 5000 * sizeof(float));
  const tutti::status came = co_await at.world.recv(in, tutti::any_source, at.stream);
  TUTTI_EXPECT(came.source == left);
  TUTTI_EXPECT(came.tag == 3);
  TUTTI_EXPECT(came.bytes == 5000 * sizeof(float));
  co_await sending;
  co_await at.stream.download(got, in);
  got.resize(5000);
  TUTTI_EXPECT(got == numbers(left, 5000));
  // To itself, without a tag.
  tutti::request to_me = at.world.isend(out, me, at.stream);
  co_await at.world.recv(in, me, at.stream);
  co_await to_me;
  // A buffer that is too short.
  to_me = at.world.isend(out, me, at.stream);
  gpu::device_buffer<float> little(at.device, 10);
  auto r = co_await tutti::as_result(at.world.recv(little, me, at.stream));
  TUTTI_EXPECT(r.error == errc::truncated);
  co_await to_me;
  // Messages stay in order, although the second is short and the third is empty.
  gpu::device_buffer<float> none(at.device, 0);
  tutti::request first = at.world.isend(out, right, at.stream),
                 second = at.world.isend(little, right, at.stream),
                 third = at.world.isend(none, right, at.stream);
  for (const std::size_t bytes : {out.bytes(), little.bytes(), none.bytes()}) {
    const tutti::status next = co_await at.world.recv(in, left, at.stream);
    TUTTI_EXPECT(next.bytes == bytes);
  }
  co_await first;
  co_await second;
  co_await third;
}

// Runs main(world, bench) on ranks that share one emulated device.
template <class Main>
void on_emulated(int ranks, Main main) {
  const auto device = std::make_shared<tutti::emulated::emulated_device>();
  bench on;
  on.open = [device](const communicator& of) { return tutti::emulated::open(of, device); };
  on.pause = [device](bool still) { device->pause(still); };
  tutti::init_options options;
  options.timeout = tutti::test::patience;
  tutti::run_local(ranks, options, [&](communicator world) { return main(std::move(world), &on); });
}

task<> probed(place at, tutti::status* seen) { *seen = co_await at.world.probe(0, 7, at.stream); }

// The receive gets the first message, although the probe waited before it.
task<> a_probe_beside_a_receive(communicator world, bench* on) {
  const place at = co_await open(world, on);
  gpu::device_buffer<float> x(at.device, 10), longer(at.device, 20);
  if (world.rank() == 0) {
    co_await world.barrier();
    co_await world.send(x, 1, 7, at.stream);
    co_await world.barrier();
    co_await world.send(longer, 1, 7, at.stream);
  } else {
    tutti::status seen;
    tutti::scope probing;
    probing.spawn(probed(at, &seen));
    tutti::request receiving = world.irecv(longer, 0, 7, at.stream);
    co_await world.barrier();
    const tutti::status first = co_await receiving;
    TUTTI_EXPECT(first.bytes == x.bytes());
    co_await world.barrier();
    co_await probing.join();
    TUTTI_EXPECT(seen.bytes == longer.bytes());
    co_await world.recv(longer, 0, 7, at.stream);
  }
}
TEST_CASE("a probe takes nothing from a receive") { on_emulated(2, a_probe_beside_a_receive); }

// One step of training: a stream waits for the all_reduce at once if the device has gates, otherwise when it is in the
// device's streams.
task<> step(place at) {
  const gpu::stream compute = at.stream;
  communicator world = at.world;
  std::vector<float> host(1 << 16, static_cast<float>(world.rank() + 1));
  gpu::device_buffer<float> x(at.device, host.size());
  co_await compute.upload(x, host);
  tutti::request reducing = tutti::start(world.all_reduce(x, tutti::sum, compute));
  if (at.device.can().gate) {
    compute.wait(reducing);
  } else {
    const bool follows = co_await compute.follow(reducing);
    TUTTI_EXPECT(follows);
  }
  co_await compute.reached();
  co_await compute.download(host, x);
  const int ranks = world.size();
  TUTTI_EXPECT(host == std::vector<float>(1 << 16, static_cast<float>(ranks * (ranks + 1) / 2)));
  if (reducing) co_await reducing;
}

task<> all_of_it(communicator world, bench* on) {
  const place at = co_await open(world, on, with(gpu::backend::automatic));
  co_await step(at);
  for (const std::size_t n : {std::size_t{1500}, std::size_t{1}, std::size_t{0}})
    co_await every_collective(at, n);
  co_await lists_and_chunks(at);
  co_await messages(at);
  co_await world.barrier();
}

task<> staged(communicator world, bench* on) {
  const place at = co_await open(world, on, with(gpu::backend::staged));
  co_await step(at);
  co_await every_collective(at, 1500);
  co_await world.barrier();
}

TEST_CASE("every operation gives on memory of devices what it gives on memory of the host") {
  on_each_backend(1, all_of_it);
  on_each_backend(3, all_of_it);
}

TEST_CASE("the same where everything is staged") { on_each_backend(2, staged); }

template <class T, class Op>
task<> reduces(place at, Op op) {
  return tutti::test::same_in_place<T>(
      at, 100, [op](auto& c, auto& x, auto&... s) { return c.all_reduce(x, op, s...); });
}
template <class T>
task<> every_reduction_of(place at) {
  co_await reduces<T>(at, tutti::sum);
  co_await reduces<T>(at, tutti::product);
  co_await reduces<T>(at, tutti::min);
  co_await reduces<T>(at, tutti::max);
  co_await reduces<T>(at, tutti::premul_sum(2));
  if constexpr (std::is_integral_v<T>) {
    co_await reduces<T>(at, tutti::band);
    co_await reduces<T>(at, tutti::bor);
    co_await reduces<T>(at, tutti::bxor);
  } else {
    co_await reduces<T>(at, tutti::avg);
  }
}
// Small integers: every type can represent their sums and products.
task<> every_reduction(communicator world, bench* on) {
  const place at = co_await open(world, on);
  co_await every_reduction_of<std::int8_t>(at);
  co_await every_reduction_of<std::uint8_t>(at);
  co_await every_reduction_of<std::int16_t>(at);
  co_await every_reduction_of<std::uint16_t>(at);
  co_await every_reduction_of<std::int32_t>(at);
  co_await every_reduction_of<std::uint32_t>(at);
  co_await every_reduction_of<std::int64_t>(at);
  co_await every_reduction_of<std::uint64_t>(at);
  co_await every_reduction_of<float>(at);
  co_await every_reduction_of<double>(at);
  co_await every_reduction_of<tutti::float16>(at);
  co_await every_reduction_of<tutti::bfloat16>(at);
  co_await reduces<std::complex<float>>(at, tutti::sum);
  co_await even_collectives<tutti::bfloat16>(at, 777);
  co_await even_collectives<std::int64_t>(at, 777);
}
TEST_CASE("every reduction of every type gives what it gives on memory of the host") {
  on_each_backend(2, every_reduction);
}

task<> in_other_communicators(communicator world, bench* on) {
  const place at = co_await open(world, on);
  place other = at;
  other.world = co_await world.split(world.rank() % 2, 0);
  co_await every_collective(other, 100);
  other.world = co_await other.world.duplicate();
  co_await every_collective(other, 100);
  co_await every_collective(at, 100);
}
TEST_CASE("communicators made from the world have its devices") { on_emulated(4, in_other_communicators); }

task<> beside_the_host(communicator world, bench* on) {
  const place at = co_await open(world, on, with(gpu::backend::staged));
  gpu::device_buffer<float> x(at.device, 5000), y(at.device, 5000);
  const std::vector<float> ones(5000, 1.0F);
  std::vector<float> host(5000, 1.0F), got(5000);
  co_await at.stream.upload(x, ones);
  co_await at.stream.upload(y, ones);
  tutti::request first = tutti::start(world.all_reduce(x, tutti::sum, at.stream));
  tutti::request second = tutti::start(world.all_reduce(host, tutti::sum));
  tutti::request third = tutti::start(world.all_reduce(y, tutti::sum, at.stream));
  co_await third;
  co_await second;
  co_await first;
  const std::vector<float> expected(5000, static_cast<float>(world.size()));
  TUTTI_EXPECT(host == expected);
  for (const auto* b : {&x, &y}) {
    co_await at.stream.download(got, *b);
    TUTTI_EXPECT(got == expected);
  }
  auto average = co_await tutti::prepare(world.all_reduce(x, tutti::sum, at.stream));
  for (int i = 0; i < 3; ++i) {
    co_await at.stream.upload(x, ones);
    co_await average();
    co_await at.stream.download(got, x);
    TUTTI_EXPECT(got == expected);
  }
}
TEST_CASE("operations on memory of host and devices are in flight together; prepared ones repeat") {
  on_emulated(3, beside_the_host);
}

task<> which_backend(communicator world, bench* on) {
  const place at = co_await open(world, on);
  gpu::device_buffer<float> x(at.device, 8);
  const gpu::served_by one = gpu::backend_for(world.all_reduce(x, tutti::sum, at.stream));
  TUTTI_EXPECT(one.with == gpu::backend::one_device);
  TUTTI_EXPECT(one.not_by.size() == 2);
  TUTTI_EXPECT(one.not_by[0].by == gpu::backend::nccl);
  const gpu::served_by other = gpu::backend_for(world.scan(x, x, tutti::sum, at.stream));
  TUTTI_EXPECT(other.with == gpu::backend::staged);
  TUTTI_EXPECT(other.not_by.back().by == gpu::backend::one_device);
  TUTTI_EXPECT(other.not_by.back().why.find("staged") != std::string::npos);
  TUTTI_EXPECT(gpu::backend_for(world.send(x, 0, at.stream)).with == gpu::backend::staged);
}
TEST_CASE("a query says which backend serves a call, and why not another") { on_emulated(2, which_backend); }

task<> forced(communicator world, bench* on) {
  const place at = co_await open(world, on, with(gpu::backend::one_device));
  gpu::device_buffer<float> x(at.device, 8);
  const gpu::served_by none = gpu::backend_for(world.scan(x, x, tutti::sum, at.stream));
  TUTTI_EXPECT(none.with == gpu::backend::automatic);
  TUTTI_EXPECT(none.not_by.size() == 4);
  auto r = co_await tutti::as_result(world.scan(x, x, tutti::sum, at.stream));
  TUTTI_EXPECT(r.error == errc::not_supported);
  const auto greatest = [](float a, float b) { return a < b ? b : a; };
  r = co_await tutti::as_result(world.all_reduce(x, greatest, at.stream));
  TUTTI_EXPECT(r.error == errc::not_supported);
  co_await world.all_reduce(x, tutti::sum, at.stream);
}
TEST_CASE("what a forced backend cannot serve is refused") { on_emulated(2, forced); }

task<> wrong_arguments(communicator world, bench* on) {
  const gpu::device device = on->open(world);
  const gpu::stream s(device);
  gpu::device_buffer<float> x(device, 8);
  auto r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, s));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  TUTTI_EXPECT(r.message.find("gpu::open") != std::string::npos);
  co_await gpu::open(world, device);
  r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, gpu::stream()));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, s).with(tutti::algorithm::ring));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  r = co_await tutti::as_result(world.broadcast(x, 5, s));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  r = co_await tutti::as_result(world.send(x, -3, s));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  gpu::device_buffer<float> nine(device, 9);
  r = co_await tutti::as_result(world.all_reduce(x, nine, tutti::sum, s));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  r = co_await tutti::as_result(world.all_to_all(nine, nine, s));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  r = co_await tutti::as_result(communicator().all_reduce(x, tutti::sum, s));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  const gpu::stream foreign(on->open(world));
  r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, foreign));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  TUTTI_EXPECT(r.message.find("once") != std::string::npos);
  // None of these calls has changed anything.
  co_await world.all_reduce(x, tutti::sum, s);
}
task<> open_of_a_half(communicator world, bench* on) {
  const communicator half = co_await world.split(world.rank() % 2, 0);
  const place at = co_await open(half, on);
  gpu::device_buffer<float> x(at.device, 8);
  co_await half.all_reduce(x, tutti::sum, at.stream);
  auto r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, at.stream));
  TUTTI_EXPECT(r.error == errc::invalid_argument);
  TUTTI_EXPECT(r.message.find("was not in gpu::open") != std::string::npos);
}
TEST_CASE("devices that were opened by some of the ranks are of those only") {
  on_emulated(4, open_of_a_half);
}

// Two groups that share rank 1 open the device one after the other. Those made from the first find its ranks afterwards.
task<> use(communicator group, gpu::device on) {
  const gpu::stream stream(on);
  const std::vector<int> ones(100, 1);
  std::vector<int> out(ones.size());
  gpu::device_buffer<int> x(on, ones.size());
  co_await stream.upload(x, ones);
  tutti::request r = tutti::start(group.all_reduce(x, tutti::sum, stream));
  const bool follows = co_await stream.follow(r);
  TUTTI_EXPECT(follows);
  co_await stream.download(out, x);
  TUTTI_EXPECT(out[99] == group.size());
  co_await r;
}
task<> open_of_two_groups(communicator world, bench* on) {
  const communicator left = co_await world.split(world.rank() < 2 ? 0 : -1, 0);
  const communicator right = co_await world.split(world.rank() > 0 ? 0 : -1, 0);
  const gpu::device device = on->open(world);
  for (const communicator& each : {left, right}) {
    if (!each) continue;
    co_await gpu::open(each, device);
    co_await use(each, device);
  }
  if (!left) co_return;
  const communicator again = co_await left.duplicate();
  co_await use(again, device);
}
TEST_CASE("groups that share a rank open the device one after the other") {
  on_emulated(3, open_of_two_groups);
}

// The stream does not follow what fails before it is in the device's streams; the request says why.
task<> follow_a_failure(communicator world, bench* on, gpu::backend by) {
  const place at = co_await open(world, on, with(by));
  gpu::device_buffer<float> x(at.device, world.rank() == 0 ? 8 : 9);
  tutti::request r = tutti::start(world.all_reduce(x, tutti::sum, at.stream));
  const bool follows = co_await at.stream.follow(r);
  TUTTI_EXPECT(!follows);
  const auto end = co_await tutti::as_result(r);
  TUTTI_EXPECT(end.error == errc::mismatch);
}
TEST_CASE("a stream does not follow an operation that fails") {
  for (const gpu::backend by : {gpu::backend::one_device, gpu::backend::staged})
    on_emulated(2,
                [by](communicator world, bench* on) { return follow_a_failure(std::move(world), on, by); });
}

TEST_CASE("bad arguments are refused on their own rank, and nothing is lost") {
  on_emulated(2, wrong_arguments);
}

task<> different_calls(communicator world, bench* on) {
  const place at = co_await open(world, on);
  gpu::device_buffer<float> x(at.device, 8);
  std::vector<float> host(8);
  tutti::result<> r;
  if (world.rank() == 0) {
    r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, at.stream));
  } else {
    r = co_await tutti::as_result(world.all_reduce(host, tutti::sum));
  }
  TUTTI_EXPECT(r.error == errc::mismatch);
  TUTTI_EXPECT(r.message.find("memory of devices") != std::string::npos);
}
TEST_CASE("a rank that gives memory of the host where another gives a device's") {
  on_emulated(2, different_calls);
}

task<> different_counts(communicator world, bench* on, gpu::backend by) {
  const place at = co_await open(world, on, with(by));
  gpu::device_buffer<float> x(at.device, world.rank() == 0 ? 8 : 9);
  auto r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, at.stream));
  TUTTI_EXPECT(r.error == errc::mismatch);
  const communicator next = co_await world.shrink();
  gpu::device_buffer<float> y(at.device, 8);
  co_await next.all_reduce(y, tutti::sum, at.stream);
}
TEST_CASE("different calls are told on all ranks; after shrink() devices go on") {
  for (const gpu::backend by : {gpu::backend::one_device, gpu::backend::staged})
    on_emulated(2,
                [by](communicator world, bench* on) { return different_counts(std::move(world), on, by); });
}

task<> device_fails(communicator world, bench* on) {
  if (!on->fail_after) co_return;  // a GPU cannot be made to fail
  const place at = co_await open(world, on, with(gpu::backend::staged));
  gpu::device_buffer<int> x(at.device, 20000);
  co_await world.barrier();
  if (world.rank() == 0) on->fail_after(7, "it fell off the bus");
  co_await world.barrier();
  auto r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, at.stream));
  TUTTI_EXPECT(r.error == errc::device_failed);
}
TEST_CASE("a failing device ends the operation on all ranks") { on_each_backend(2, device_fails); }

task<> one_does_not_come(communicator world, bench* on, gpu::backend by) {
  const place at = co_await open(world, on, with(by));
  gpu::device_buffer<float> x(at.device, 5000);
  if (world.rank() == 0) {
    auto r = co_await tutti::as_result(tutti::with_timeout(world.all_reduce(x, tutti::sum, at.stream), 20ms));
    TUTTI_EXPECT(r.error == errc::timed_out);
    TUTTI_EXPECT(r.message.find("rank 1") != std::string::npos);
  } else {
    // Rank 1 learns of the failure while it waits for a message that does not come.
    float nothing = 0;
    auto r = co_await tutti::as_result(world.recv(nothing, 0));
    TUTTI_EXPECT(r.error == errc::timed_out);
  }
}
TEST_CASE(
    "an operation that not all call is ended by its deadline, on all ranks, naming who has not called it") {
  for (const gpu::backend by : {gpu::backend::one_device, gpu::backend::staged})
    on_emulated(2,
                [by](communicator world, bench* on) { return one_does_not_come(std::move(world), on, by); });
}

// Rank 2 does not call, so the operation cannot complete anywhere.
task<> dropped(communicator world, bench* on, gpu::backend by) {
  const place at = co_await open(world, on, with(by));
  gpu::device_buffer<float> x(at.device, 5000);
  co_await world.barrier();  // nobody is still opening when rank 0 ends the world's operations
  if (world.rank() == 0) {
    tutti::request r = tutti::start(world.all_reduce(x, tutti::sum, at.stream));
    at.stream.wait(r);
  } else if (world.rank() == 1) {
    auto r = co_await tutti::as_result(world.all_reduce(x, tutti::sum, at.stream));
    TUTTI_EXPECT(r.error == errc::cancelled);
  } else {
    float nothing = 0;
    auto r = co_await tutti::as_result(world.recv(nothing, 0));
    TUTTI_EXPECT(r.error == errc::cancelled);
  }
  // A stream that waited for the operation goes on.
  co_await at.stream.reached();
  const communicator next = co_await world.shrink();
  co_await next.all_reduce(x, tutti::sum, at.stream);
}
TEST_CASE("a request that is dropped ends the operation on all ranks, and lets streams go on") {
  for (const gpu::backend by : {gpu::backend::one_device, gpu::backend::staged})
    on_emulated(3, [by](communicator world, bench* on) { return dropped(std::move(world), on, by); });
}

// Rank 0 sends from one memory, rank 1 receives into the other.
task<> of_another_memory(communicator world, bench* on) {
  const place at = co_await open(world, on);
  gpu::device_buffer<float> x(at.device, 8);
  std::vector<float> host(8);
  if (world.rank() == 0) {
    co_await world.send(x, 1, 3, at.stream);
    co_await world.send(host, 1, 4);
    co_await world.send(host, 1, 5);
    co_await world.barrier();
    co_return;
  }
  co_await world.recv(host, 0, 5);  // the other messages have arrived
  auto r = co_await tutti::as_result(tutti::with_timeout(world.recv(host, 0, 3), 20ms));
  TUTTI_EXPECT(r.error == errc::timed_out);
  TUTTI_EXPECT(r.message.find("from memory of a device from rank 0") != std::string::npos);
  TUTTI_EXPECT(r.message.find("receive it with a stream") != std::string::npos);
  co_await world.recv(x, 0, 3, at.stream);
  r = co_await tutti::as_result(tutti::with_timeout(world.recv(x, 0, 4, at.stream), 20ms));
  TUTTI_EXPECT(r.error == errc::timed_out);
  TUTTI_EXPECT(r.message.find("receive it without a stream") != std::string::npos);
  co_await world.recv(host, 0, 4);
  co_await world.barrier();
}
TEST_CASE("a message of the other kind of memory is named when a receive ends in vain") {
  on_emulated(2, of_another_memory);
}

// Three chunks a message.
constexpr std::size_t message_floats = 5'000;
gpu::open_options small_chunks() {
  gpu::open_options how = with(gpu::backend::staged);
  how.chunk_bytes = 8'192;
  return how;
}
task<> expect_numbers(gpu::stream s, const gpu::device_buffer<float>& x, float value) {
  std::vector<float> host(x.size());
  co_await s.download(host, x);
  TUTTI_EXPECT(host == std::vector<float>(x.size(), value));
}

// Rank 0's stream computes until rank 1 says so: the header of its message comes, and no chunk.
task<> receive_ends_early(communicator world, bench* on) {
  const place at = co_await open(world, on, small_chunks());
  gpu::device_buffer<float> x(at.device, message_floats), y(at.device, message_floats);
  int token = 0;
  if (world.rank() == 0) {
    co_await at.stream.upload(x, std::vector<float>(message_floats, 7));
    gpu::gate gate = at.stream.close();
    request sending = world.isend(x, 1, 3, at.stream);
    co_await world.send(token, 1, 8);
    co_await world.recv(token, 1, 9);
    gate.open();
    co_await sending;
  } else {
    request first = world.irecv(x, 0, 3, at.stream);
    co_await world.recv(token, 0, 8);  // the header has come
    request second = world.irecv(y, 0, 3, at.stream);
    first = {};
    second.cancel();
    const auto r = co_await tutti::as_result(second);
    TUTTI_EXPECT(r.error == errc::cancelled);
    const status there = co_await world.probe(0, 3, at.stream);
    TUTTI_EXPECT(there.bytes == message_floats * sizeof(float));
    request third = world.irecv(x, 0, 3, at.stream), fourth = world.irecv(y, 0, any_tag, at.stream);
    third = {};
    co_await world.send(token, 0, 9);
    const status from = co_await fourth;
    TUTTI_EXPECT(from.tag == 3);
    co_await expect_numbers(at.stream, y, 7);
  }
  co_await world.barrier();
}
TEST_CASE("a receive on a device that ends early leaves its message to the next") {
  on_emulated(2, receive_ends_early);
}

task<> send_is_dropped(communicator world, bench* on) {
  const place at = co_await open(world, on, small_chunks());
  gpu::device_buffer<float> x(at.device, message_floats);
  int token = 0;
  if (world.rank() == 0) {
    gpu::gate gate = at.stream.close();
    {
      request dropped = world.isend(x, 1, 3, at.stream);
      co_await world.recv(token, 1, 8);
    }
    co_await world.send(token, 1, 7);
    gate.open();
    co_await at.stream.upload(x, std::vector<float>(message_floats, 5));
    co_await world.send(x, 1, 3, at.stream);
  } else {
    request receiving = world.irecv(x, 0, 3, at.stream);
    co_await world.send(token, 0, 8);
    co_await world.recv(token, 0, 7);
    co_await receiving;
    co_await expect_numbers(at.stream, x, 5);
  }
  co_await world.barrier();
}
TEST_CASE("a send from a device that is dropped leaves the receive to the next message") {
  on_emulated(2, send_is_dropped);
}

// Both streams compute: the receive that is dropped has used no chunk.
task<> probed_while_closed(communicator world, bench* on) {
  const place at = co_await open(world, on, small_chunks());
  gpu::device_buffer<float> x(at.device, message_floats);
  gpu::stream other(at.device);
  int token = 0;
  gpu::gate gate = at.stream.close();
  if (world.rank() == 0) {
    request sending = world.isend(x, 1, 3, at.stream);
    co_await world.recv(token, 1, 8);
    gate.open();
    co_await sending;
  } else {
    co_await world.probe(0, 3, other);
    {
      request dropped = world.irecv(x, 0, 3, at.stream);
      co_await tutti::sleep_for(1ms);
    }
    co_await world.probe(0, 3, other);
    gate.open();
    co_await world.send(token, 0, 8);
    co_await world.recv(x, 0, 3, at.stream);
  }
  co_await world.barrier();
}
TEST_CASE("a probe does not wait for the gate of another stream, where a receive was dropped") {
  on_emulated(2, probed_while_closed);
}

// Rank 1's stream computes: four chunks are on their way to the device when the receive is dropped.
task<> dropped_with_chunks(communicator world, bench* on) {
  const place at = co_await open(world, on, small_chunks());
  gpu::device_buffer<float> x(at.device, 20 * message_floats);
  int token = 0;
  if (world.rank() == 0) {
    request sending = world.isend(x, 1, 3, at.stream);
    co_await world.recv(token, 1, 8);
    co_await sending;
  } else {
    gpu::gate gate = at.stream.close();
    gpu::stream other(at.device);
    co_await world.send(token, 0, 8);
    co_await world.probe(0, 3, other);
    // A receive that was dropped too soon to use a chunk leaves the message there.
    bool there = true;
    for (auto patience = 1ms; there; patience *= 2) {
      {
        request dropped = world.irecv(x, 0, 3, at.stream);
        co_await tutti::sleep_for(patience);
      }
      const auto r = co_await tutti::as_result(tutti::with_timeout(world.probe(0, 3, other), 1000ms));
      there = !r.error;
    }
    gate.open();
  }
  co_await world.barrier();
}
TEST_CASE("a message of which a dropped receive on a device has used a part is taken from its sender") {
  on_emulated(2, dropped_with_chunks);
}

// ---- vendors' libraries, on their stand-ins ----

task<> by_nccl(communicator world) {
  const gpu::device device = tutti::cuda::open(world, world.rank());
  co_await gpu::open(world, device);
  const place at{world, device, gpu::stream(device)};
  gpu::device_buffer<float> x(device, 8);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(x, tutti::sum, at.stream)).with == gpu::backend::nccl);
  TUTTI_EXPECT(gpu::backend_for(world.scan(x, x, tutti::sum, at.stream)).with == gpu::backend::staged);
  co_await step(at);
  co_await every_collective(at, 1500);
  co_await lists_and_chunks(at);
  co_await messages(at);
  // Several operations before the library is connected.
  place other = at;
  other.world = co_await world.duplicate();
  std::vector<gpu::device_buffer<int>> buffers;
  std::vector<tutti::request> requests;
  const std::vector<int> ones(100, 1);
  for (int i = 0; i < 5; ++i) {
    gpu::device_buffer<int>& b = buffers.emplace_back(device, 100);
    co_await at.stream.upload(b, ones);
    requests.push_back(tutti::start(other.world.all_reduce(b, tutti::sum, at.stream)));
    at.stream.wait(requests.back());
    requests.push_back(tutti::start(other.world.all_reduce(b, tutti::sum, at.stream)));
  }
  for (tutti::request& r : requests) co_await r;
  std::vector<int> out(100);
  for (const auto& b : buffers) {
    co_await at.stream.download(out, b);
    TUTTI_EXPECT(out[99] == world.size() * world.size());
  }
  co_await world.barrier();
}

// The last rank does not call.
task<> nccl_without_one(communicator world) {
  const gpu::device device = tutti::cuda::open(world, world.rank());
  co_await gpu::open(world, device);
  const gpu::stream s(device);
  gpu::device_buffer<float> x(device, 8);
  co_await world.all_reduce(x, tutti::sum, s);
  if (world.rank() + 1 < world.size()) {
    auto r = co_await tutti::as_result(tutti::with_timeout(world.all_reduce(x, tutti::sum, s), 20ms));
    TUTTI_EXPECT(r.error == errc::timed_out);
    TUTTI_EXPECT(r.message.find("rank 1") != std::string::npos);
  } else {
    float nothing = 0;
    auto r = co_await tutti::as_result(world.recv(nothing, 0));
    TUTTI_EXPECT(r.error == errc::timed_out);
  }
  co_await s.reached();
  const communicator next = co_await world.shrink();
  co_await next.all_reduce(x, tutti::sum, s);
}

TEST_CASE("collectives go by NCCL where each rank has a GPU of its own; what it has not is staged") {
  const tutti::test::variable cuda("TUTTI_CUDA_LIBRARY", tutti::test::stand_in("cuda"));
  const tutti::test::variable nccl("TUTTI_NCCL_LIBRARY", tutti::test::stand_in("nccl"));
  const tutti::test::fake_cuda fake;
  fake.reset(3, tutti::test::seed_of_this_run(), 0, 1);
  const std::uint64_t before = fake.misuses();
  tutti::init_options options;
  options.timeout = tutti::test::patience;
  tutti::run_local(3, options, by_nccl);
  tutti::run_local(2, options, nccl_without_one);
  CHECK_MESSAGE(fake.misuses() == before, std::string(fake.last_misuse()));
}

task<> by_oneccl(communicator world, bench* on) {
  const place at = co_await open(world, on, with(gpu::backend::oneccl));
  gpu::device_buffer<float> x(at.device, 8);
  TUTTI_EXPECT(gpu::backend_for(world.all_reduce(x, tutti::sum, at.stream)).with == gpu::backend::oneccl);
  co_await step(at);
  co_await same_in_place(at, 1500,
                         [](auto& c, auto& v, auto&... s) { return c.all_reduce(v, tutti::avg, s...); });
  co_await messages(at);
  auto r = co_await tutti::as_result(world.scan(x, x, tutti::sum, at.stream));
  TUTTI_EXPECT(r.error == errc::not_supported);
  co_await world.barrier();
}
TEST_CASE("collectives go by oneCCL where that is forced") {
  const tutti::test::variable library("TUTTI_ONECCL_LIBRARY", tutti::test::stand_in("oneccl"));
  on_emulated(2, by_oneccl);
}

TEST_CASE("gpu::open by the environment") {
  const tutti::test::variable kind("TUTTI_DEVICE", "emulated"), way("TUTTI_GPU_BACKEND", "staged");
  tutti::run_local(2, tutti::init_options(), [](communicator world) -> task<> {
    const gpu::device device = co_await gpu::open(world);
    TUTTI_EXPECT(device.name().find("emulated") != std::string::npos);
    const gpu::stream s(device);
    gpu::device_buffer<int> x(device, 4);
    const gpu::served_by by = gpu::backend_for(world.all_reduce(x, tutti::sum, s));
    TUTTI_EXPECT(by.with == gpu::backend::staged);
    TUTTI_EXPECT(by.not_by.back().why == "the backend staged is forced");
  });
}

}  // namespace
