// SPDX-License-Identifier: Apache-2.0
// Messages in shared memory between ranks of one host: the receiver reads them in place, whole or not at all,
// while both sides cancel at random.
#include "comm/communicator_state.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t MiB = 1024 * 1024;

// The number of messages that this rank has read in place.
std::uint64_t fetched(const communicator& world) {
  const operation<> any = world.barrier();  // never started: it knows its communicator
  return any.what().comm->endpoint().counters().fetched;
}

bool is_filled(std::span<const std::byte> bytes, std::uint64_t number) {
  const std::vector<std::byte> wanted = filled(bytes.size(), number);
  return std::memcmp(wanted.data(), bytes.data(), bytes.size()) == 0;
}

constexpr std::size_t sizes[] = {4096, 4097, 16384, 16385, 65536, 262144, 262145, MiB, 16 * MiB};

// From the start and the middle of an allocation, with early and late receives. Only messages longer than 4
// KiB use rendezvous and are read in place.
task<> every_size(communicator world, bool direct) {
  const int other = 1 - world.rank();
  std::uint64_t rts = 0;
  for (const bool late_receiver : {false, true}) {
    for (const std::size_t bytes : sizes) {
      for (const std::size_t shift : {0, 13}) {
        if (world.rank() == 0) {
          auto out = allocate_shared<std::byte>(bytes + shift);
          const std::span<std::byte> message = std::span(out).subspan(shift);
          fill(message, bytes + shift);
          co_await world.barrier();
          co_await world.send(message, other, 7);
          fill(message, 1);  // the sender's buffer again
        } else {
          guarded_buffer buffer(bytes);
          std::span<std::byte> in = buffer.span();
          std::optional<request> early;
          if (!late_receiver) early = world.irecv(in, other, 7);
          co_await world.barrier();
          if (late_receiver) early = world.irecv(in, other, 7);
          const status st = co_await *early;
          TUTTI_EXPECT(st.bytes == bytes);
          TUTTI_EXPECT(is_filled(in, bytes + shift));
          TUTTI_EXPECT(buffer.margins_intact());
          rts += bytes > 4096 ? 1 : 0;
        }
        co_await world.barrier();
      }
    }
  }
  TUTTI_EXPECT(fetched(world) == (direct ? rts : 0));
}

task<> ordinary_memory_goes_through_the_ring(communicator world) {
  const std::vector<std::byte> out = filled(MiB, 3);
  shared_vector<std::byte> in(MiB);
  if (world.rank() == 0) {
    co_await world.send(out, 1);
  } else {
    co_await world.recv(in, 0);
    TUTTI_EXPECT(is_filled(in, 3));
  }
  TUTTI_EXPECT(fetched(world) == 0);
}

// More messages than slots. Those without a slot use the ring and stay in order.
task<> many_at_once(communicator world) {
  constexpr std::size_t many = 200;
  constexpr std::size_t bytes = 20'000;
  shared_vector<std::byte> all(many * bytes);
  const auto part = [&](std::size_t i) { return std::span(all).subspan(i * bytes, bytes); };
  std::vector<request> requests;
  const int other = 1 - world.rank();
  shared_vector<std::byte> in(many * bytes);
  for (std::size_t i = 0; i < many; ++i) {
    fill(part(i), i);
    requests.push_back(world.isend(part(i), other));
  }
  for (std::size_t i = 0; i < many; ++i)
    requests.push_back(world.irecv(std::span(in).subspan(i * bytes, bytes), other));
  for (request& r : requests) co_await r;
  for (std::size_t i = 0; i < many; ++i) TUTTI_EXPECT(is_filled(std::span(in).subspan(i * bytes, bytes), i));
  TUTTI_EXPECT(fetched(world) >= 64);
}

// The loop turns during the read of a long message, and other messages pass it.
task<> small_ones_pass(communicator world) {
  const int other = 1 - world.rank();
  if (world.rank() == 0) {
    auto out = allocate_shared<std::byte>(32 * MiB);
    fill(out, 5);
    request sending = world.isend(out, other, 1);
    for (int i = 0; i < 20; ++i) {
      int x = i;
      co_await world.send(x, other, 2);
      co_await world.recv(x, other, 3);
      TUTTI_EXPECT(x == i);
    }
    co_await sending;
  } else {
    std::vector<std::byte> in(32 * MiB);
    request receiving = world.irecv(in, other, 1);
    for (int i = 0; i < 20; ++i) {
      int x = -1;
      co_await world.recv(x, other, 2);
      co_await world.send(x, other, 3);
    }
    co_await receiving;
    TUTTI_EXPECT(is_filled(in, 5));
    TUTTI_EXPECT(fetched(world) == 1);
  }
}

// Round trips of short messages. Meanwhile the reader of a long one copies a slice or two.
task<> exchange(communicator world, std::size_t times) {
  const int other = 1 - world.rank();
  for (std::size_t i = 0; i < times; ++i) {
    std::size_t got = 0;
    if (world.rank() == 0) co_await world.send(i, other, 1'000'000);
    co_await world.recv(got, other, 1'000'000);
    if (world.rank() == 1) co_await world.send(i, other, 1'000'000);
  }
}

// The sender cancels and overwrites the message at once. The receiver may still be waiting then, so a second,
// short message follows.
task<> send_and_cancel(communicator world, std::size_t bytes, std::uint64_t number, int tag,
                       std::size_t after) {
  const int other = 1 - world.rank();
  auto out = allocate_shared<std::byte>(bytes);
  fill(out, number);
  request sending = world.isend(out, other, tag);
  co_await exchange(world, after);
  sending = request();
  fill(out, 666);
  request instead = world.isend(number, other, tag);
  int answer = 0;
  co_await world.recv(answer, other, 2'000'000);
}

enum class arrived { whole, replaced, cancelled };

task<arrived> receive_or_not(communicator world, std::size_t bytes, std::uint64_t number, int tag,
                             std::size_t after) {
  const int other = 1 - world.rank();
  guarded_buffer buffer(bytes);
  request receiving = world.irecv(buffer.span(), other, tag);
  co_await exchange(world, after);
  const failure f = co_await failure_awaiting(&receiving);
  co_await world.send(1, other, 2'000'000);
  TUTTI_EXPECT(buffer.margins_intact());
  if (f.code == errc::cancelled) co_return arrived::cancelled;
  TUTTI_EXPECT(f.code == make_error_code(errc::success));
  std::uint64_t first = 0;
  std::memcpy(&first, buffer.span().data(), sizeof first);
  if (first == number) co_return arrived::replaced;
  TUTTI_EXPECT(is_filled(buffer.span(), number));
  co_return arrived::whole;
}

// The receive is cancelled: it gets no more bytes, and the message stays for the next receive or for its
// sender to cancel.
task<> send_to_nobody(communicator world, std::size_t bytes, std::uint64_t number, int tag,
                      std::size_t after) {
  auto out = allocate_shared<std::byte>(bytes);
  fill(out, number);
  request sending = world.isend(out, 1 - world.rank(), tag);
  co_await exchange(world, after);
  co_await world.barrier();
  if (tag % 2 == 0) co_await sending;
  sending = request();
  fill(out, 666);
}
task<> receive_and_give_up(communicator world, std::size_t bytes, std::uint64_t number, int tag,
                           std::size_t after) {
  guarded_buffer buffer(bytes);
  request receiving = world.irecv(buffer.span(), 1 - world.rank(), tag);
  co_await exchange(world, after);
  const bool came = receiving.done();
  receiving = request();
  const std::vector<std::byte> then(buffer.span().begin(), buffer.span().end());
  co_await world.barrier();
  if (tag % 2 == 0 && !came) {
    std::vector<std::byte> again(bytes);
    co_await world.recv(again, any_source, tag);
    TUTTI_EXPECT(is_filled(again, number));
  }
  TUTTI_EXPECT(buffer.margins_intact());
  TUTTI_EXPECT(std::memcmp(then.data(), buffer.span().data(), then.size()) == 0);
}

task<> send_whole(communicator world, std::size_t bytes, std::uint64_t number, int tag) {
  auto out = allocate_shared<std::byte>(bytes);
  fill(out, number);
  co_await world.send(out, 1 - world.rank(), tag);
  fill(out, 666);
}
task<> receive_whole(communicator world, std::size_t bytes, std::uint64_t number, int tag) {
  guarded_buffer buffer(bytes);
  std::span<std::byte> in = buffer.span();
  co_await world.recv(in, 1 - world.rank(), tag);
  TUTTI_EXPECT(is_filled(in, number));
  TUTTI_EXPECT(buffer.margins_intact());
}

struct storm_results {
  std::atomic<int> whole = 0;
  std::atomic<int> taken_back = 0;  // before or during the read
};

// Message i has tag i, so that it matches only its own receive.
task<> storm(communicator world, std::uint64_t seed, storm_results* results) {
  random_numbers plan(seed);  // the same on both ranks
  for (int i = 0; i < 100; ++i) {
    constexpr std::size_t lengths[] = {8192, 300'000, 2 * MiB, 6 * MiB};
    const std::size_t bytes = lengths[plan.below(std::size(lengths))];
    const std::uint64_t number = plan.next();
    const std::size_t what = plan.below(3);
    const std::size_t after = plan.below(1 + plan.below(12));
    const bool sends = world.rank() == static_cast<int>(plan.below(2));
    if (what == 0) {
      if (sends) {
        co_await send_and_cancel(world, bytes, number, i, after);
      } else {
        const arrived a = co_await receive_or_not(world, bytes, number, i, after);
        results->whole += a == arrived::whole ? 1 : 0;
        results->taken_back += a != arrived::whole ? 1 : 0;
      }
    } else if (what == 1) {
      if (sends) {
        co_await send_to_nobody(world, bytes, number, i, after);
      } else {
        co_await receive_and_give_up(world, bytes, number, i, after);
      }
    } else {
      if (sends) {
        co_await send_whole(world, bytes, number, i);
      } else {
        co_await receive_whole(world, bytes, number, i);
      }
    }
  }
  co_await world.barrier();
  TUTTI_EXPECT(fetched(world) > 20);
}

// Collectives: sums of vectors in shared memory have the same bits as of ordinary ones.
task<> sums(communicator world) {
  for (const std::size_t count : {std::size_t{5000}, std::size_t{300'001}}) {
    shared_vector<float> in(count), out(count);
    std::vector<float> plain_out(count);
    for (std::size_t i = 0; i < count; ++i)
      in[i] = static_cast<float>(i % 1000) * 0.37F + static_cast<float>(world.rank());
    const std::vector<float> plain_in(in.begin(), in.end());
    co_await world.all_reduce(in, out, sum);
    co_await world.all_reduce(plain_in, plain_out, sum);
    TUTTI_EXPECT(std::memcmp(out.data(), plain_out.data(), count * sizeof(float)) == 0);
    co_await world.broadcast(in, 0);
  }
  co_await world.barrier();
}

}  // namespace

TEST_CASE("direct reads: every size in shared memory, over shared memory and over TCP") {
  run_local(2, over("shm"), [](communicator world) { return every_size(std::move(world), true); });
  run_local(2, over("tcp"), [](communicator world) { return every_size(std::move(world), false); });
}

TEST_CASE("direct reads: ordinary memory is not read in place") {
  run_local(2, over("shm"), ordinary_memory_goes_through_the_ring);
}

TEST_CASE("direct reads: more messages than slots") { run_local(2, over("shm"), many_at_once); }

TEST_CASE("direct reads: small messages pass a long one") { run_local(2, over("shm"), small_ones_pass); }

TEST_CASE("direct reads: sends and receives cancelled at any moment") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  storm_results results;
  for (std::uint64_t round = 0; round < 2; ++round)
    run_local(2, over("shm"),
              [&](communicator world) { return storm(std::move(world), seed + round, &results); });
  // Of about 70 cancelled messages.
  CHECK(results.whole > 0);
  CHECK(results.taken_back > 0);
}

TEST_CASE("direct reads: collectives on shared memory") {
  run_local(2, over("shm"), sums);
  run_local(3, over("shm"), sums);
}
