// SPDX-License-Identifier: Apache-2.0
// Messages without a receive: probed without being received, and bounded in memory.
#include "comm/communicator_state.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <numeric>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

void on_each_transport(int ranks, task<> (*main)(communicator)) {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(ranks, over(transport), main));
  }
}

p2p::endpoint_counters traffic_of(const communicator& c) {
  const operation<> any = c.barrier();
  return any.what().comm->endpoint().counters();
}

// Empty or short messages.
constexpr int more_than_a_window = static_cast<int>(p2p::eager_window / p2p::node_cost) + 1000;

// Many short messages before the first receive: the sender has to wait, the receiver's memory is bounded, and
// all messages arrive in order.
task<> fast_sender(communicator world) {
  constexpr int messages = more_than_a_window;
  if (world.rank() == 0) {
    std::vector<int> numbers(messages);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::vector<request> sending;
    sending.reserve(messages);
    for (const int& x : numbers) sending.push_back(world.isend(x, 1, 5));
    // Not all of them could leave without a receive.
    TUTTI_EXPECT(traffic_of(world).rendezvous > 0);
    TUTTI_EXPECT(traffic_of(world).eager < messages);
    const int go = 1;
    co_await world.send(go, 1, 6);
    for (request& r : sending) co_await r;
    // The credit has returned: eager again.
    int answer = 0;
    co_await world.recv(answer, 1, 7);
    const std::uint64_t before = traffic_of(world).rendezvous;
    co_await world.send(go, 1, 8);
    TUTTI_EXPECT(traffic_of(world).rendezvous == before);
  } else {
    int go = 0;
    co_await world.recv(go, 0, 6);
    for (int i = 0; i < messages; ++i) {
      int x = -1;
      co_await world.recv(x, 0, 5);
      TUTTI_EXPECT(x == i);
    }
    co_await world.send(go, 0, 7);
    co_await world.recv(go, 0, 8);
  }
}

// Awaited sends to a receiver that keeps up: credit returns all the time.
task<> steady_stream(communicator world) {
  std::vector<int> data(100);
  for (int i = 0; i < 20'000; ++i) {
    if (world.rank() == 0) {
      data[0] = i;
      co_await world.send(data, 1);
    } else {
      co_await world.recv(data, 0);
      TUTTI_EXPECT(data[0] == i);
    }
  }
}

// More messages than the window for unexpected ones holds.
task<> to_itself(communicator world) {
  std::vector<int> out(10'000);
  std::vector<request> sending;
  sending.reserve(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int>(i);
    sending.push_back(world.isend(out[i], world.rank()));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    int x = -1;
    co_await world.recv(x, world.rank());
    TUTTI_EXPECT(x == static_cast<int>(i));
  }
  for (request& r : sending) co_await r;
}

// Any number of requests, each with its own buffer, started before the first receive.
task<> many_requests(communicator world) {
  constexpr std::size_t n = 3'000;
  std::vector<int> in(n, -1);
  std::vector<int> out(n);
  std::vector<request> all;
  all.reserve(2 * n);
  const int other = 1 - world.rank();
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<int>(i) + 10'000 * world.rank();
    all.push_back(world.irecv(in[i], other, static_cast<int>(i)));
  }
  // In the opposite order: tags match, not positions.
  for (std::size_t i = n; i-- > 0;) all.push_back(world.isend(out[i], other, static_cast<int>(i)));
  for (request& r : all) co_await r;
  for (std::size_t i = 0; i < n; ++i) TUTTI_EXPECT(in[i] == static_cast<int>(i) + 10'000 * other);
}

task<> polls_first(communicator world) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{300'000}}) {
    if (world.rank() == 0) {
      const std::vector<int> data(count, 7);
      co_await world.send(data, 1, 4);
    } else if (world.rank() == 1) {
      const status seen = co_await world.probe(any_source, any_tag);
      TUTTI_EXPECT(seen.source == 0);
      TUTTI_EXPECT(seen.tag == 4);
      TUTTI_EXPECT(seen.count<int>() == count);
      const status again = co_await world.probe(0, 4);  // still there
      TUTTI_EXPECT(again.bytes == seen.bytes);
      std::vector<int> data(seen.count<int>());
      const status got = co_await world.recv(data, seen.source, seen.tag);
      TUTTI_EXPECT(got.bytes == seen.bytes);
      TUTTI_EXPECT(data == std::vector<int>(count, 7));
    }
    co_await world.barrier();
  }
}

task<> probes_that_end(communicator world) {
  if (world.rank() == 0) {
    boost::asio::steady_timer timer(world.get_executor(), std::chrono::milliseconds(1));
    bool cancelled = false;
    boost::asio::cancellation_signal signal;
    world.probe(1, 9)(
        boost::asio::bind_cancellation_slot(signal.slot(), [&cancelled](boost::system::error_code c, status) {
          cancelled = c == boost::asio::error::operation_aborted;
        }));
    co_await timer.async_wait(boost::asio::deferred);
    signal.emit(boost::asio::cancellation_type::terminal);
    timer.expires_after(std::chrono::milliseconds(1));
    co_await timer.async_wait(boost::asio::deferred);
    TUTTI_EXPECT(cancelled);
    const int go = 1;
    co_await world.send(go, 1);
    const failure f = co_await failure_in(world.probe(1, 9));  // rank 1 leaves
    TUTTI_EXPECT(f.code == errc::peer_left);
    TUTTI_EXPECT(f.text.find("probe") != std::string::npos);
  } else {
    int x = 1;
    co_await world.send(x, 0, 3);
    co_await world.recv(x, 0);
  }
}

// All other ranks get their turn, however fast one of them sends.
task<> fair(communicator world) {
  constexpr int each = 200;
  if (world.rank() != 0) {
    for (int i = 0; i < each; ++i) co_await world.send(i, 0);
    co_return;
  }
  std::vector<int> next(static_cast<std::size_t>(world.size()));
  for (int i = 0; i < each * (world.size() - 1); ++i) {
    int x = -1;
    const status st = co_await world.recv(x, any_source);
    TUTTI_EXPECT(x == next[static_cast<std::size_t>(st.source)]++);
  }
}

// Also empty messages without credit.
task<> nothing_without_credit(communicator world) {
  constexpr int messages = more_than_a_window;
  char none = 0;
  if (world.rank() == 0) {
    const std::span<const char> nothing(&none, 0);
    std::vector<request> sending;
    for (int i = 0; i < messages; ++i) sending.push_back(world.isend(nothing, 1, 5));
    const std::uint64_t before = traffic_of(world).rendezvous;
    TUTTI_EXPECT(before > 0);
    co_await world.send(nothing, 1, 6);
    TUTTI_EXPECT(traffic_of(world).rendezvous == before + 1);
    co_await world.barrier().with(algorithm::dissemination);
    for (request& r : sending) co_await r;
  } else {
    const status st = co_await world.recv(std::span<char>(&none, 0), 0, 6);
    TUTTI_EXPECT(st.bytes == 0);
    co_await world.barrier().with(algorithm::dissemination);
    for (int i = 0; i < messages; ++i) co_await world.recv(std::span<char>(&none, 0), 0, 5);
  }
}

// Messages for destroyed communicators do not use credit or memory permanently.
task<> for_nobody(communicator world) {
  const std::vector<char> data(2000, 'x');
  for (int i = 0; i < 2500; ++i) {
    communicator c = co_await world.duplicate();
    if (world.rank() == 0) co_await c.send(data, 1, 3);  // no rank receives it
    c = communicator();
    co_await world.barrier();
  }
  const std::uint64_t before = traffic_of(world).rendezvous;
  if (world.rank() == 0) {
    co_await world.send(data, 1, 4);
    TUTTI_EXPECT(traffic_of(world).rendezvous == before);
  } else {
    std::vector<char> in(data.size());
    co_await world.recv(in, 0, 4);
    const operation<> any = world.barrier();
    TUTTI_EXPECT(any.what().comm->endpoint().usage().unexpected < 10);
  }
}

}  // namespace

TEST_CASE("flow control: no bytes without credit") { on_each_transport(2, nothing_without_credit); }
TEST_CASE("flow control: messages for destroyed communicators") { on_each_transport(2, for_nobody); }
TEST_CASE("flow control: a fast sender cannot exhaust a slow receiver") { on_each_transport(2, fast_sender); }
TEST_CASE("flow control: credit returns") { on_each_transport(2, steady_stream); }
TEST_CASE("flow control: to itself") { CHECK_NOTHROW(run_local(1, over("shm", 4 * patience), to_itself)); }
TEST_CASE("flow control: thousands of requests") { on_each_transport(2, many_requests); }
TEST_CASE("probe: reports a message and leaves it") { on_each_transport(3, polls_first); }
TEST_CASE("probe: cancelled, and when the peer leaves") { on_each_transport(2, probes_that_end); }
TEST_CASE("any source: every sender's messages in order") { on_each_transport(4, fair); }
