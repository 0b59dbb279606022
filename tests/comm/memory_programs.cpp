// SPDX-License-Identifier: Apache-2.0
#include "comm/memory_programs.hpp"

#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <optional>
#include <tutti/train/data_parallel.hpp>
#include <vector>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

void expect(bool right) {
  if (!right) throw wrong_result{};
}

// Eager, by rendezvous, before their receive, read in place, from any source.
task<> messages(communicator world) {
  const int other = 1 - world.rank();
  static constexpr std::size_t counts[] = {10, 40'000};
  for (const std::size_t count : counts) {
    std::vector<double> mine(count, world.rank()), theirs(count);
    request sending = world.isend(mine, other);
    co_await world.recv(theirs, other);
    co_await sending;
    expect(theirs.front() == other && theirs.back() == other);
  }
  const int late = world.rank();
  int early = -1;
  co_await world.send(late, other, 7);
  co_await world.barrier();
  const status found = co_await world.probe(any_source, 7);
  expect(found.source == other && found.bytes == sizeof(int));
  co_await world.recv(early, any_source);
  expect(early == other);
  shared_vector<int> shown(50'000, world.rank()), read(50'000);
  request showing = world.isend(shown, other);
  co_await world.recv(read, other);
  co_await showing;
  expect(read.front() == other && read.back() == other);
  int self = -1;
  request to_self = world.isend(late, world.rank());
  co_await world.recv(self, world.rank());
  co_await to_self;
  expect(self == late);
}

// Cancelled and timed-out receives, which lose no message.
task<> receive_cancellation(communicator world) {
  const int other = 1 - world.rank();
  std::vector<double> mine(20'000, world.rank()), theirs(20'000);
  {
    const request dropped = world.irecv(theirs, other, 1);
  }
  request cancelled = world.irecv(theirs, other, 2);
  cancelled.cancel();
  bool ended = false;
  try {
    co_await cancelled;
  } catch (const error& e) {
    if (e.code() != errc::cancelled) throw;
    ended = true;
  }
  expect(ended);
  ended = false;
  auto in_vain = world.recv(theirs, other, 3);
  try {
    co_await with_timeout(std::move(in_vain), 1ms);
  } catch (const error& e) {
    if (e.code() != errc::timed_out) throw;
    ended = true;
  }
  expect(ended);
  request sending = world.isend(mine, other, 4);
  bool received = false;
  {
    request taken = world.irecv(theirs, other, 4);
    received = taken.done();  // the message has arrived, or the receive has failed
    taken.cancel();
    if (received) co_await taken;
  }
  if (!received) co_await world.recv(theirs, other, 4);
  co_await sending;
  expect(theirs.front() == other && theirs.back() == other);
  co_await world.barrier();
}

task<> reductions(communicator world) {
  static constexpr std::size_t counts[] = {4, 5000, 100'000};
  for (const std::size_t count : counts) {
    std::vector<float> sums(count, 1.0F);
    co_await world.all_reduce(sums, tutti::sum);
    expect(sums.front() == 2 && sums.back() == 2);
  }
  std::vector<float16> halves(3000, float16(1.0F));
  auto ring = world.all_reduce(halves, tutti::sum).with(algorithm::ring);
  co_await std::move(ring);
  expect(static_cast<float>(halves.back()) == 2);
  std::vector<int> in(2000, world.rank() + 1), out(2000);
  co_await world.reduce(in, out, tutti::max, 1);
  if (world.rank() == 1) expect(out.back() == 2);
  co_await world.scan(in, out, tutti::sum);
  expect(out.back() == (world.rank() == 0 ? 1 : 3));
  std::vector<int> part(1000);
  co_await world.reduce_scatter(in, part, tutti::sum);
  expect(part.back() == 3);
}

task<> movements(communicator world) {
  int root = world.rank();
  co_await world.broadcast(root, 1);
  expect(root == 1);
  std::vector<int> own(3000, world.rank()), all(6000);
  co_await world.all_gather(own, all);
  expect(all.front() == 0 && all.back() == 1);
  std::vector<int> out(6000, world.rank()), in(6000);
  co_await world.all_to_all(out, in);
  expect(in.front() == 0 && in.back() == 1);
  co_await world.gather(own, all, 0);
  co_await world.scatter(all, own, 0);
  expect(own.back() == world.rank());
  const std::vector<std::size_t> counts = {100, 200};
  std::vector<int> uneven(counts[static_cast<std::size_t>(world.rank())], world.rank()), together(300);
  co_await world.all_gather_v(uneven, together, counts);
  expect(together.front() == 0 && together.back() == 1);
  for (int i = 0; i < 10; ++i) co_await world.barrier();
}

task<> groups(communicator world) {
  communicator again = co_await world.duplicate();
  communicator half = co_await world.split(world.rank(), 0);
  expect(half.size() == 1);
  const std::vector<int> both = {1, 0};
  communicator turned = co_await world.group(both);
  int value = turned.rank();
  co_await turned.broadcast(value, 0);
  expect(value == 0 && turned.rank() == 1 - world.rank());
  std::vector<int> sums(100, 1);
  co_await again.all_reduce(sums, tutti::sum);
  expect(sums.back() == 2);
  co_await world.barrier();  // a rank that calls shrink ends pending operations of others
  communicator left = co_await again.shrink();
  expect(left.size() >= 1);  // alone if the other rank has closed their connection
  co_await world.barrier();
  co_await left.barrier();
}

task<> echo(communicator world, int tag) {
  const int other = 1 - world.rank();
  int mine = tag, theirs = -1;
  request sending = world.isend(mine, other, tag);
  co_await world.recv(theirs, other, tag);
  co_await sending;
  expect(theirs == tag);
}

task<> produce(channel<int>* to) {
  for (int i = 0; i < 40; ++i) co_await to->send(i);
  to->close();
}

task<> consume(channel<int>* from, int* sum) {
  for (;;) {
    const std::optional<int> next = co_await from->receive();
    if (!next) break;
    *sum += *next;
  }
}

task<int> nested(int depth) {
  if (depth == 0) co_return 0;
  const int below = co_await nested(depth - 1);
  co_return below + 1;
}

task<> structured(communicator world) {
  co_await when_all(echo(world, 1), echo(world, 2), world.barrier());
  {
    scope work;
    for (int tag = 10; tag < 14; ++tag) work.spawn(echo(world, tag));
    co_await work.join();
  }
  int never = 0;
  auto in_vain = world.recv(never, 1 - world.rank(), 99);
  auto pause = sleep_for(1ms);
  co_await when_any(std::move(in_vain), std::move(pause));
  channel<int> values(2);
  int sum = 0;
  co_await when_all(produce(&values), consume(&values, &sum));
  expect(sum == 780);
  const int depth = co_await nested(200);
  expect(depth == 200);
  boost::asio::steady_timer timer(world.get_executor(), 1ms);
  co_await timer.async_wait(boost::asio::deferred);
  const auto work = [] { return 42; };
  const int computed = co_await compute(work);
  expect(computed == 42);
  request later = start(world.barrier());
  co_await later;
}

// Shared memory in place, other memory by requests, eager and by rendezvous.
task<> one_sided(communicator world) {
  const int other = 1 - world.rank();
  for (const bool shared : {false, true}) {
    std::vector<double> ordinary(shared ? 0 : 40'000);
    shared_vector<double> in_shared(shared ? 40'000 : 0);
    window w = co_await world.window(shared ? std::span<double>(in_shared) : std::span<double>(ordinary));
    const std::vector<double> ones(w.local().size(), 1);
    std::vector<double> theirs(w.local().size());
    co_await w.put(std::span(ones).first(700), other);
    co_await w.flush(other);
    co_await w.accumulate(std::span(ones).first(700), other, 0, sum);
    co_await w.accumulate(std::span(ones).subspan(700), other, 700, sum);
    co_await w.flush(other);
    co_await world.barrier();
    co_await w.put_signal(ones, other, 0, 0);
    co_await w.fetch_add(other, 0, 1);
    co_await w.wait_signal(0, [](std::uint64_t n) { return n == 2; });
    co_await w.get(theirs, other);
    expect(theirs.back() >= 1);
    co_await world.barrier();
  }
}

task<> training(communicator world) {
  std::vector<float> weights(3000), bias(10);
  const std::vector<gradient_view> gradients = {gradient_view(std::span(weights)),
                                                gradient_view(std::span(bias))};
  data_parallel_options options;
  options.first_bucket_bytes = 16;
  options.bucket_bytes = 4000;
  data_parallel parallel = co_await data_parallel::create(world, gradients, options);
  for (int step = 0; step < 3; ++step) {
    for (float& w : weights) w = static_cast<float>(world.rank());
    for (float& b : bias) b = 1;
    parallel.ready(1);
    parallel.ready(0);
    co_await parallel.reduced();
    expect(weights.back() == 0.5F && bias.back() == 1);
  }
}

}  // namespace

const memory_program memory_programs[] = {
    {"messages", messages},     {"cancellation", receive_cancellation},
    {"reductions", reductions}, {"movements", movements},
    {"groups", groups},         {"structured", structured},
    {"training", training},     {"one-sided", one_sided},
};
const int memory_program_count = static_cast<int>(std::size(memory_programs));

}  // namespace tutti::test
