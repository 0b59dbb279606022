// SPDX-License-Identifier: Apache-2.0
// send, recv, isend and irecv between ranks, over each real transport.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <deque>
#include <numeric>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

// Sizes and their neighbours: the body of a line, the smallest block of shared memory that is read in place,
// the eager limits and slices of shm and TCP, several slices, several rings.
constexpr std::size_t sizes[] = {
    0,     1,     31,    32,    33,    47,    48,     49,     4095,   4096,          4097,
    16383, 16384, 16385, 65535, 65536, 65537, 131071, 262144, 262145, (1 << 20) + 3, 16 << 20};

task<> every_size_to_a_neighbour(communicator world) {
  const int other = 1 - world.rank();
  for (const bool late_receiver : {false, true}) {
    for (const std::size_t bytes : sizes) {
      const std::vector<std::byte> wanted = filled(bytes, bytes + 1);
      if (world.rank() == 0) {
        co_await world.send(wanted, other, 7);
        int answer = 0;
        co_await world.recv(answer, other, 8);  // one size at a time
      } else {
        guarded_buffer buffer(bytes);
        std::span<std::byte> data = buffer.span();
        if (late_receiver) {
          int never = 0;  // lets the message arrive first
          request waiting = world.irecv(never, other, 99);
          co_await world.send(bytes, 1, 5);
          std::size_t self = 0;
          co_await world.recv(self, 1, 5);
        }
        const status st = co_await world.recv(data, other, 7);
        TUTTI_EXPECT(st.source == 0);
        TUTTI_EXPECT(st.tag == 7);
        TUTTI_EXPECT(st.bytes == bytes);
        TUTTI_EXPECT(std::equal(data.begin(), data.end(), wanted.begin(), wanted.end()));
        TUTTI_EXPECT(buffer.margins_intact());
        co_await world.send(1, other, 8);
      }
    }
  }
}

task<> both_directions_at_once(communicator world) {
  const int other = 1 - world.rank();
  for (const std::size_t bytes : sizes) {
    const std::vector<std::byte> out = filled(bytes, bytes * 2 + static_cast<std::size_t>(world.rank()));
    const std::vector<std::byte> wanted = filled(bytes, bytes * 2 + static_cast<std::size_t>(other));
    std::vector<std::byte> in(bytes);
    request sending = world.isend(out, other);
    request receiving = world.irecv(in, other);
    const status st = co_await receiving;
    co_await sending;
    TUTTI_EXPECT(st.bytes == bytes);
    TUTTI_EXPECT(in == wanted);
  }
  // Both ranks send before they post their receive.
  const std::size_t bytes = 3 << 20;
  const std::vector<std::byte> out = filled(bytes, 1);
  std::vector<std::byte> in(bytes);
  request sending = world.isend(out, other, 3);
  co_await world.recv(in, other, 3);
  co_await sending;
  TUTTI_EXPECT(in == out);
}

constexpr int many = 10'000;

task<> ten_thousand_in_flight(communicator world) {
  const int other = 1 - world.rank();
  std::vector<std::array<int, 3>> values(many);
  std::deque<request> requests;
  if (world.rank() == 0) {
    for (int i = 0; i < many; ++i) {
      values[static_cast<std::size_t>(i)] = {i, i * 3, i ^ 0x5555};
      requests.push_back(world.isend(values[static_cast<std::size_t>(i)], other, i % 5));
    }
  } else {
    for (int i = 0; i < many; ++i)
      requests.push_back(world.irecv(values[static_cast<std::size_t>(i)], other, i % 5));
  }
  for (int i = 0; i < many; ++i) {
    const status st = co_await requests[static_cast<std::size_t>(i)];
    if (world.rank() == 0) continue;
    TUTTI_EXPECT(st.bytes == sizeof values[0]);
    TUTTI_EXPECT(st.tag == i % 5);
    TUTTI_EXPECT((values[static_cast<std::size_t>(i)] == std::array<int, 3>{i, i * 3, i ^ 0x5555}));
  }
}

// All messages arrive before the first receive is posted.
task<> ten_thousand_unexpected(communicator world) {
  std::vector<int> values(many);
  if (world.rank() == 0) {
    std::iota(values.begin(), values.end(), 0);
    std::deque<request> requests;
    for (int& v : values) requests.push_back(world.isend(v, 1, v % 3));
    co_await world.send(0, 1, 1000);
    for (request& r : requests) co_await r;
  } else {
    int last = -1;
    co_await world.recv(last, 0, 1000);
    for (int tag = 0; tag < 3; ++tag) {
      for (int expected = tag; expected < many; expected += 3) {
        int got = -1;
        const status st = co_await world.recv(got, 0, tag);
        TUTTI_EXPECT(got == expected);
        TUTTI_EXPECT(st.tag == tag);
      }
    }
  }
}

// A change of protocol must not let one message overtake another.
task<> order_with_mixed_sizes(communicator world, std::uint64_t seed) {
  constexpr int messages = 300;
  constexpr std::size_t lengths[] = {8, 24, 48, 64, 4096, 4104, 65536, 65544, 300'000};
  random_numbers numbers(seed);
  std::vector<std::vector<std::uint64_t>> buffers;
  for (int i = 0; i < messages; ++i)
    buffers.emplace_back(lengths[numbers.below(std::size(lengths))] / 8,
                         static_cast<std::uint64_t>(i) * 1000003);
  std::deque<request> requests;
  if (world.rank() == 0) {
    for (auto& b : buffers) requests.push_back(world.isend(b, 1, 4));
    for (request& r : requests) co_await r;
    co_return;
  }
  std::vector<std::uint64_t> in(300'000 / 8);
  std::vector<std::vector<std::uint64_t>> early(messages / 2, in);
  for (auto& b : early) requests.push_back(world.irecv(b, 0, numbers.one_in(2) ? 4 : any_tag));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    status st;
    const bool posted = i < early.size();
    if (posted) {
      st = co_await requests[i];
    } else {
      st = co_await world.recv(in, numbers.one_in(2) ? 0 : any_source, 4);
    }
    const std::vector<std::uint64_t>& got = posted ? early[i] : in;
    TUTTI_EXPECT(st.bytes == buffers[i].size() * 8);
    TUTTI_EXPECT(std::equal(buffers[i].begin(), buffers[i].end(), got.begin()));
  }
}

task<> to_itself(communicator world) {
  for (const std::size_t bytes : sizes) {
    const std::vector<std::byte> out = filled(bytes, bytes + 9);
    std::vector<std::byte> in(bytes);
    request sending = world.isend(out, world.rank(), 11);
    const status st = co_await world.recv(in, world.rank(), 11);
    co_await sending;
    TUTTI_EXPECT(st.source == world.rank());
    TUTTI_EXPECT(in == out);
    // In the opposite order, and with a pending receive from another rank.
    int never = 0;
    request pending = world.irecv(never, any_source, 12345);
    std::fill(in.begin(), in.end(), std::byte{0});
    request receiving = world.irecv(in, any_source, 12);
    co_await world.send(out, world.rank(), 12);
    co_await receiving;
    TUTTI_EXPECT(in == out);
    pending.cancel();
    const failure ended = co_await failure_awaiting(&pending);
    TUTTI_EXPECT(ended.code == errc::cancelled);
  }
}

task<> from_any_rank_with_any_tag(communicator world, std::size_t elements) {
  constexpr int rounds = 40;
  if (world.rank() != 0) {
    std::vector<int> data(elements);
    for (int i = 0; i < rounds; ++i) {
      std::fill(data.begin(), data.end(), world.rank() * 1000 + i);
      co_await world.send(data, 0, world.rank() * 100 + i);
    }
    co_return;
  }
  std::vector<int> next(static_cast<std::size_t>(world.size()), 0);
  std::vector<int> data(elements);
  for (int i = 0; i < rounds * (world.size() - 1); ++i) {
    const status st = co_await world.recv(data, any_source, any_tag);
    TUTTI_EXPECT(st.source > 0);
    TUTTI_EXPECT(st.source < world.size());
    int& expected = next[static_cast<std::size_t>(st.source)];
    TUTTI_EXPECT(st.tag == st.source * 100 + expected);  // in order for each source
    TUTTI_EXPECT(st.count<int>() == elements);
    TUTTI_EXPECT(data.front() == st.source * 1000 + expected);
    TUTTI_EXPECT(data.back() == st.source * 1000 + expected);
    ++expected;
  }
}

task<> tags_are_chosen_by_the_receiver(communicator world) {
  if (world.rank() == 0) {
    std::vector<request> sending;
    std::vector<std::vector<int>> data;
    for (int tag = 0; tag < 6; ++tag) data.emplace_back(tag % 2 == 0 ? 1 : 50'000, tag);
    for (int tag = 0; tag < 6; ++tag)
      sending.push_back(world.isend(data[static_cast<std::size_t>(tag)], 1, tag));
    for (request& r : sending) co_await r;
  } else {
    std::vector<int> in(50'000);
    for (const int tag : {5, 0, 3, 2, 4, 1}) {
      const status st = co_await world.recv(in, 0, tag);
      TUTTI_EXPECT(st.tag == tag);
      TUTTI_EXPECT(in.front() == tag);
      TUTTI_EXPECT(st.count<int>() == (tag % 2 == 0 ? 1 : 50'000));
    }
  }
}

task<> truncation(communicator world) {
  constexpr std::size_t cases[][2] = {
      {1, 0},         {48, 47},       {100, 3},       {4096, 4095},       {4097, 4096},
      {16385, 16384}, {65536, 65535}, {65537, 65536}, {200'000, 100'000}, {(2 << 20) + 1, 2 << 20}};
  for (const bool posted_first : {true, false}) {
    for (const auto& [sent, room] : cases) {
      if (world.rank() == 0) {
        int ready = 0;
        if (posted_first) co_await world.recv(ready, 1, 1);
        const std::vector<std::byte> data = filled(sent, sent);
        request sending = world.isend(data, 1, 2);
        if (!posted_first) co_await world.send(ready, 1, 1);
        co_await sending;                 // a truncated message counts as sent
        co_await world.send(sent, 1, 3);  // the communicator stays usable
      } else {
        guarded_buffer buffer(room);
        std::span<std::byte> data = buffer.span();
        int ready = 0;
        request receiving;
        if (posted_first) {
          receiving = world.irecv(data, 0, 2);
          co_await world.send(ready, 0, 1);
        } else {
          co_await world.recv(ready, 0, 1);
          receiving = world.irecv(data, 0, 2);
        }
        const failure ended = co_await failure_awaiting(&receiving);
        TUTTI_EXPECT(ended.code == errc::truncated);
        TUTTI_EXPECT(ended.says(std::to_string(sent) + " bytes"));
        TUTTI_EXPECT(ended.says("rank 0"));
        TUTTI_EXPECT(buffer.margins_intact());
        std::size_t next = 0;
        co_await world.recv(next, 0, 3);
        TUTTI_EXPECT(next == sent);
      }
    }
  }
}

task<> shorter_is_fine(communicator world) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{5000}, std::size_t{100'000}}) {
    const std::vector<std::byte> data = filled(bytes, bytes);
    if (world.rank() == 0) {
      co_await world.send(data, 1);
    } else {
      std::vector<std::byte> in(bytes + 1000, std::byte{0x77});
      const status st = co_await world.recv(in, 0);
      TUTTI_EXPECT(st.bytes == bytes);
      TUTTI_EXPECT(std::equal(data.begin(), data.end(), in.begin()));
      TUTTI_EXPECT(std::all_of(in.begin() + static_cast<std::ptrdiff_t>(bytes), in.end(),
                               [](std::byte b) { return b == std::byte{0x77}; }));
    }
  }
}

// A receive dropped or cancelled before its message loses none, and does not touch its buffer.
task<> receives_that_end_early(communicator world) {
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{4096}, std::size_t{60'000}, std::size_t{500'000}}) {
    const std::vector<std::byte> data = filled(bytes, bytes);
    int go = 0;
    if (world.rank() == 0) {
      co_await world.recv(go, 1, 1);
      co_await world.send(data, 1, 2);
      co_await world.recv(go, 1, 3);
    } else {
      guarded_buffer dropped(bytes);
      guarded_buffer cancelled(bytes);
      std::span<std::byte> one = dropped.span();
      std::span<std::byte> two = cancelled.span();
      {
        request a = world.irecv(one, 0, 2);
        request b = world.irecv(two, 0, 2);
        TUTTI_EXPECT(!a.done());
        b.cancel();
        const failure ended = co_await failure_awaiting(&b);
        TUTTI_EXPECT(ended.code == errc::cancelled);
      }
      co_await world.send(go, 0, 1);
      std::vector<std::byte> in(bytes);
      co_await world.recv(in, 0, 2);
      TUTTI_EXPECT(in == data);
      TUTTI_EXPECT(dropped.untouched());
      TUTTI_EXPECT(cancelled.untouched());
      co_await world.send(go, 0, 3);
    }
  }
}

// A receive dropped or cancelled at any moment of the transfer: nothing is written afterwards, the message
// waits for the next receive, and later ones stay behind it.
task<> receives_ended_half_way(communicator world, std::size_t bytes) {
  const std::vector<std::byte> data = filled(bytes, 3);
  for (int turns = 0; turns < 12; ++turns) {
    if (world.rank() == 0) {
      int ready = 0;
      co_await world.recv(ready, 1, 5);
      request sending = world.isend(data, 1, 6);
      request behind = world.isend(turns, 1, 6);
      co_await sending;
      co_await behind;
    } else {
      guarded_buffer buffer(bytes);
      std::span<std::byte> in = buffer.span();
      request receiving = world.irecv(in, 0, 6);
      co_await world.send(turns, 0, 5);
      for (int i = 0; i < turns * 3; ++i) {  // vary the number of turns of the loop
        co_await world.send(i, 1, 8);
        int self = 0;
        co_await world.recv(self, 1, 8);
      }
      bool came = false;
      if (turns % 2 == 0) {
        came = receiving.done();
        receiving = request();
      } else {
        receiving.cancel();
        const failure ended = co_await failure_awaiting(&receiving);
        if (ended.code && ended.code != errc::cancelled) throw std::runtime_error(ended.text);
        came = !ended.code;
      }
      if (came) TUTTI_EXPECT(std::equal(data.begin(), data.end(), in.begin()));
      const std::vector<std::byte> at_end(in.begin(), in.end());
      if (!came) {
        std::vector<std::byte> again(bytes);
        const status st = co_await world.recv(again, turns % 3 == 0 ? any_source : 0, 6);
        TUTTI_EXPECT(st.bytes == bytes);
        TUTTI_EXPECT(again == data);
      }
      int next = -1;
      co_await world.recv(next, 0, 6);
      TUTTI_EXPECT(next == turns);
      TUTTI_EXPECT(buffer.margins_intact());
      TUTTI_EXPECT(std::equal(at_end.begin(), at_end.end(), in.begin()));
    }
  }
}

// The receive requests the message just when the sender cancels it, and then waits for the next one.
task<> sends_taken_back_when_asked_for(communicator world) {
  for (int turns = 0; turns < 30; ++turns) {
    std::vector<std::byte> data = filled(300'000, 1);
    if (world.rank() == 0) {
      int ready = 0;
      co_await world.recv(ready, 1, 5);
      {
        request dropped = world.isend(data, 1, 6);
        for (int i = 0; i < turns % 5; ++i)
          co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
      }
      fill(data, 2);
      co_await world.send(data, 1, 6);
      co_await world.send(turns, 1, 7);
    } else {
      std::vector<std::byte> in(data.size());
      request receiving = world.irecv(in, any_source, 6);
      co_await world.send(turns, 0, 5);
      const failure ended = co_await failure_awaiting(&receiving);
      // The message may have arrived whole although it was dropped; or the next one did; or it was cancelled
      // half way.
      TUTTI_EXPECT((!ended.code || ended.code == errc::cancelled));
      const bool first = !ended.code && in == filled(data.size(), 1);
      if (!first) {
        if (ended.code) co_await world.recv(in, 0, 6);
        TUTTI_EXPECT(in == filled(data.size(), 2));
      } else {
        co_await world.recv(in, 0, 6);
        TUTTI_EXPECT(in == filled(data.size(), 2));
      }
      int next = -1;
      co_await world.recv(next, 0, 7);
      TUTTI_EXPECT(next == turns);
    }
  }
}

// A cancelled message never arrives, and its buffer may change at once.
task<> sends_that_are_taken_back(communicator world) {
  if (world.rank() == 0) {
    std::vector<std::byte> data = filled(400'000, 1);
    {
      request dropped = world.isend(data, 1, 2);
      request cancelled = world.isend(data, 1, 2);
      cancelled.cancel();
      const failure ended = co_await failure_awaiting(&cancelled);
      TUTTI_EXPECT(ended.code == errc::cancelled);
    }
    fill(data, 2);
    co_await world.send(1, 1, 1);
    co_await world.send(data, 1, 2);
  } else {
    int go = 0;
    co_await world.recv(go, 0, 1);
    std::vector<std::byte> in(400'000);
    co_await world.recv(in, 0, 2);
    TUTTI_EXPECT(in == filled(400'000, 2));
  }
}

// Dropped at any moment of the transfer: the receiver gets the whole message or an error.
task<> sends_dropped_half_way(communicator world) {
  constexpr std::size_t bytes = 6 << 20;
  for (int turns = 0; turns < 12; ++turns) {
    if (world.rank() == 0) {
      std::vector<std::byte> data = filled(bytes, 4);
      int ready = 0;
      co_await world.recv(ready, 1, 5);
      {
        request sending = world.isend(data, 1, 6);
        for (int i = 0; i < turns * 3; ++i) {
          co_await world.send(i, 0, 8);
          int self = 0;
          co_await world.recv(self, 0, 8);
        }
      }
      fill(data, 5);
      co_await world.send(turns, 1, 7);
      co_await world.recv(ready, 1, 9);  // stays until the other side has checked
    } else {
      std::vector<std::byte> in(bytes);
      request receiving = world.irecv(in, 0, 6);
      co_await world.send(turns, 0, 5);
      int next = -1;
      co_await world.recv(next, 0, 7);
      TUTTI_EXPECT(next == turns);
      receiving.cancel();
      const failure ended = co_await failure_awaiting(&receiving);
      if (ended.code != errc::success && ended.code != errc::cancelled) throw std::runtime_error(ended.text);
      if (ended.code == errc::success) TUTTI_EXPECT(in == filled(bytes, 4));
      co_await world.send(turns, 0, 9);
    }
  }
}

// Every rank sends to and receives from every other, in random sizes and order of posting.
task<> all_with_all(communicator world, std::uint64_t seed) {
  const int n = world.size();
  constexpr int each = 12;
  const auto size_of = [seed, n](int from, int to, int i) {
    random_numbers numbers(seed + static_cast<std::uint64_t>((from * n + to) * each + i));
    const std::size_t limit = std::size_t{1} << (4 + numbers.below(15));
    return numbers.below(limit);
  };
  std::deque<std::vector<std::byte>> out;
  std::deque<std::vector<std::byte>> in;
  std::deque<request> sends;
  std::deque<request> receives;
  std::vector<std::array<int, 2>> order;
  for (int peer = 0; peer < n; ++peer)
    for (int i = 0; i < each; ++i) order.push_back({peer, i});
  random_numbers numbers(seed ^ static_cast<std::uint64_t>(world.rank() + 1));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[numbers.below(i)]);
  for (const auto& [peer, i] : order) {
    out.push_back(filled(size_of(world.rank(), peer, i), static_cast<std::uint64_t>(peer * 100 + i)));
    sends.push_back(world.isend(out.back(), peer, i));
    in.emplace_back(size_of(peer, world.rank(), i));
    receives.push_back(world.irecv(in.back(), peer, i));
  }
  for (std::size_t k = 0; k < order.size(); ++k) {
    const status st = co_await receives[k];
    const auto& [peer, i] = order[k];
    TUTTI_EXPECT(st.source == peer);
    TUTTI_EXPECT(st.tag == i);
    TUTTI_EXPECT(in[k] ==
                 filled(size_of(peer, world.rank(), i), static_cast<std::uint64_t>(world.rank() * 100 + i)));
  }
  for (request& r : sends) co_await r;
}

template <class F>
void on_each_transport(int ranks, F main) {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(ranks, over(transport), main));
  }
}

}  // namespace

TEST_CASE("point to point: every size, the receive posted before and after") {
  on_each_transport(2, every_size_to_a_neighbour);
}
TEST_CASE("point to point: both directions at once") { on_each_transport(2, both_directions_at_once); }
TEST_CASE("point to point: ten thousand in flight") { on_each_transport(2, ten_thousand_in_flight); }
TEST_CASE("point to point: ten thousand messages before the first receive") {
  on_each_transport(2, ten_thousand_unexpected);
}
TEST_CASE("point to point: messages of mixed sizes keep their order") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  on_each_transport(2, [seed](communicator world) { return order_with_mixed_sizes(std::move(world), seed); });
}
TEST_CASE("point to point: to itself") {
  on_each_transport(1, to_itself);
  on_each_transport(2, to_itself);
}
TEST_CASE("point to point: any source, any tag") {
  for (const std::size_t elements : {1, 3'000, 60'000}) {
    CAPTURE(elements);
    on_each_transport(
        4, [elements](communicator world) { return from_any_rank_with_any_tag(std::move(world), elements); });
  }
}
TEST_CASE("point to point: the receiver selects by tag") {
  on_each_transport(2, tags_are_chosen_by_the_receiver);
}
TEST_CASE("point to point: a longer message is an error and writes nothing past the end") {
  on_each_transport(2, truncation);
}
TEST_CASE("point to point: a shorter message is valid") { on_each_transport(2, shorter_is_fine); }
TEST_CASE("point to point: a receive that ends early loses nothing") {
  on_each_transport(2, receives_that_end_early);
}
TEST_CASE("point to point: a receive cancelled during the transfer loses nothing") {
  for (const std::size_t bytes : {std::size_t{4'000}, std::size_t{60'000}, std::size_t{6} << 20}) {
    CAPTURE(bytes);
    on_each_transport(
        2, [bytes](communicator world) { return receives_ended_half_way(std::move(world), bytes); });
  }
}
TEST_CASE("point to point: a send cancelled when the receiver requests it") {
  on_each_transport(2, sends_taken_back_when_asked_for);
}
TEST_CASE("point to point: a cancelled send never arrives") {
  on_each_transport(2, sends_that_are_taken_back);
}
TEST_CASE("point to point: a send dropped during the transfer arrives whole or is an error") {
  on_each_transport(2, sends_dropped_half_way);
}
TEST_CASE("point to point: all with all at once") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  for (const int ranks : {3, 5})
    on_each_transport(ranks, [seed](communicator world) { return all_with_all(std::move(world), seed); });
}
