// SPDX-License-Identifier: Apache-2.0
// Messages from shared memory between ranks of one host: read by the receiver in place, whole or not at all,
// while both sides take back what they like.
#include "comm/communicator_state.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr std::size_t MiB = 1024 * 1024;

// Messages that this rank has read in place.
std::uint64_t fetched(const communicator& world) {
  const operation<> any = world.barrier();  // never started: it knows its communicator
  return any.what().comm->endpoint().counters().fetched;
}

bool is_filled(std::span<const std::byte> bytes, std::uint64_t number) {
  const std::vector<std::byte> wanted = filled(bytes.size(), number);
  return std::equal(wanted.begin(), wanted.end(), bytes.begin());
}

constexpr std::size_t sizes[] = {4096, 4097, 65536, 262144, 262145, MiB, 16 * MiB};

// From the start and from the middle of an allocation, posted early and late; only what is longer than the
// eager limit is announced at all, and then it is read in place.
task<> every_size(communicator world, bool direct) {
  const int other = 1 - world.rank();
  std::uint64_t announced = 0;
  for (const bool late_receiver : {false, true}) {
    for (const std::size_t bytes : sizes) {
      for (const std::size_t shift : {0, 13}) {
        if (world.rank() == 0) {
          shared_vector<std::byte> out(bytes + shift);
          const std::span<std::byte> message = std::span(out).subspan(shift);
          fill(message, bytes + shift);
          co_await world.barrier();
          co_await world.send(message, other, 7);
          fill(message, 1);  // ours again
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
          announced += bytes > 4096 ? 1 : 0;
        }
        co_await world.barrier();
      }
    }
  }
  TUTTI_EXPECT(fetched(world) == (direct ? announced : 0));
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

// More than there are slots; those that find none go through the ring, in order all the same.
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

// While a long message is read, the loop turns: other messages pass it.
task<> small_ones_pass(communicator world) {
  const int other = 1 - world.rank();
  if (world.rank() == 0) {
    shared_vector<std::byte> out(64 * MiB);
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
    std::vector<std::byte> in(64 * MiB);
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

// Both sides take back what they like, whenever they like, and write over the buffers at once. What arrives
// is whole; what was given up gets not a byte more. Message i has tag i: nothing is matched with another's
// receive.
task<> storm(communicator world, std::uint64_t seed) {
  const int other = 1 - world.rank();
  random_numbers plan(seed);  // the same on both ranks
  random_numbers whim(seed ^ (world.rank() == 0 ? 0x1234 : 0x987654));
  const std::uint64_t before = fetched(world);
  std::uint64_t whole = 0;
  for (int i = 0; i < 300; ++i) {
    constexpr std::size_t lengths[] = {8192, 100'000, MiB, 3 * MiB};
    const std::size_t bytes = lengths[plan.below(std::size(lengths))];
    const std::uint64_t number = plan.next();
    const bool withdraws = plan.one_in(3);
    const bool gives_up = !withdraws && plan.one_in(4);
    const bool from_zero = plan.one_in(2);
    const int sender = from_zero ? 0 : 1;
    // Some turns of the loop, as messages to oneself are.
    const std::size_t turns = whim.below(std::size_t{1} << whim.below(10));
    if (world.rank() == sender) {
      shared_vector<std::byte> out(bytes);
      fill(out, number);
      request sending = world.isend(out, other, i);
      if (withdraws) {
        for (std::size_t t = 0; t < turns; ++t) {
          request self = world.isend(number, sender, 1'000'000);
          std::uint64_t got = 0;
          co_await world.recv(got, sender, 1'000'000);
          co_await self;
        }
        sending = request();
        fill(out, 666);
        // The receive may still wait for the message: this one is for it, if it has not failed or got the
        // first.
        request instead = world.isend(number, other, i);
        int answer = 0;
        co_await world.recv(answer, other, 2'000'000);
        instead = request();
      } else {
        if (gives_up) {
          int answer = 0;
          co_await world.recv(answer, other, 2'000'000);
          sending = request();
        } else {
          co_await sending;
        }
        fill(out, 666);
      }
    } else {
      guarded_buffer buffer(bytes);
      std::span<std::byte> in = buffer.span();
      request receiving = world.irecv(in, other, i);
      if (gives_up) {
        for (std::size_t t = 0; t < turns; ++t) {
          request self = world.isend(number, world.rank(), 1'000'000);
          std::uint64_t got = 0;
          co_await world.recv(got, world.rank(), 1'000'000);
          co_await self;
        }
        receiving = request();
        buffer = guarded_buffer(bytes);
        co_await world.send(1, other, 2'000'000);
        co_await world.barrier();
        TUTTI_EXPECT(buffer.untouched());
        continue;
      }
      const failure f = co_await failure_awaiting(&receiving);
      if (f.code == make_error_code(errc::success)) {
        std::uint64_t first = 0;
        std::memcpy(&first, in.data(), sizeof first);
        const bool replaced = withdraws && first == number;  // the short one came in its place
        if (!replaced) {
          TUTTI_EXPECT(is_filled(in, number));
          ++whole;
        }
      } else {
        TUTTI_EXPECT(withdraws);
        TUTTI_EXPECT(f.code == errc::cancelled);
      }
      TUTTI_EXPECT(buffer.margins_intact());
      if (withdraws) co_await world.send(1, other, 2'000'000);
    }
    co_await world.barrier();
  }
  TUTTI_EXPECT(whole > 20);
  TUTTI_EXPECT(fetched(world) > before + 20);
}

// Of a collective: the sum of vectors in shared memory, the same bits as from ordinary ones.
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

TEST_CASE("direct reads: every size, from shared memory over shared memory, and over TCP as ever") {
  run_local(2, over("shm"), [](communicator world) { return every_size(std::move(world), true); });
  run_local(2, over("tcp"), [](communicator world) { return every_size(std::move(world), false); });
}

TEST_CASE("direct reads: ordinary memory is not read in place") {
  run_local(2, over("shm"), ordinary_memory_goes_through_the_ring);
}

TEST_CASE("direct reads: more messages than slots") { run_local(2, over("shm"), many_at_once); }

TEST_CASE("direct reads: small messages pass a long one") { run_local(2, over("shm"), small_ones_pass); }

TEST_CASE("direct reads: taken back and given up at any moment") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  for (std::uint64_t round = 0; round < 3; ++round)
    run_local(2, over("shm"),
              [seed, round](communicator world) { return storm(std::move(world), seed + round); });
}

TEST_CASE("direct reads: collectives on shared memory") {
  run_local(2, over("shm"), sums);
  run_local(3, over("shm"), sums);
}
