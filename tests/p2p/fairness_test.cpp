// SPDX-License-Identifier: Apache-2.0
// Receives from any source take messages in order of arrival: no sender waits for ever behind another,
// however much that one sends.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <boost/asio/deferred.hpp>
#include <boost/asio/post.hpp>
#include <cstring>
#include <deque>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr int ranks = 4;

template <class F>
void on_each_transport(F main) {
  for (const std::string& transport : transports) {
    CAPTURE(transport);
    CHECK_NOTHROW(run_local(ranks, over(transport), main));
  }
}

// Each round has one message of each sender, and begins when those of the one before have arrived. So they are
// received round by round.
task<> taken_as_they_came(communicator world, std::size_t bytes) {
  constexpr int rounds = 30;
  if (world.rank() != 0) {
    const std::vector<std::byte> data = filled(bytes, 1);
    std::vector<request> sending;
    for (int i = 0; i < rounds; ++i) {
      sending.push_back(world.isend(data, 0, i));
      co_await world.barrier();
    }
    for (request& r : sending) co_await r;
    co_return;
  }
  for (int i = 0; i < rounds; ++i) {
    for (int sender = 1; sender < ranks; ++sender) co_await world.probe(sender, i);
    co_await world.barrier();
  }
  std::array<int, ranks> taken{};
  std::vector<std::byte> in(bytes);
  for (int i = 0; i < rounds * (ranks - 1); ++i) {
    const status st = co_await world.recv(in, any_source);
    int& of_this = taken[static_cast<std::size_t>(st.source)];
    TUTTI_EXPECT(st.tag == of_this);
    ++of_this;
    const auto [least, most] = std::minmax_element(taken.begin() + 1, taken.end());
    TUTTI_EXPECT(*most - *least <= 1);
  }
}

constexpr int stop = 1;
constexpr int question = 2;
constexpr int flood = 3;

// Ranks 1 and 2 send without pause until they are told to stop. Rank 3 sends a request and waits for the
// answer, behind all messages of the others. Rank 0 keeps some receives from any source posted.
task<> slow_among_fast(communicator world, std::size_t posted, std::size_t bytes) {
  constexpr int questions = 20;
  if (world.rank() == 3) {
    for (int i = 0; i < questions; ++i) {
      co_await world.send(i, 0, question);
      int answer = -1;
      co_await world.recv(answer, 0, question);
      TUTTI_EXPECT(answer == i);
    }
    co_return;
  }
  if (world.rank() != 0) {
    int told = 0;
    request stopped = world.irecv(told, 0, stop);
    const std::vector<std::byte> data = filled(bytes, 1);
    std::deque<request> sending;
    while (!stopped.done()) {
      sending.push_back(world.isend(data, 0, flood));
      if (sending.size() < 16) continue;
      // Other ranks get their turn even if it completes at once.
      request& oldest = sending.front();
      co_await oldest;
      sending.pop_front();
      co_await boost::asio::post(world.get_executor(), boost::asio::deferred);
    }
    co_await stopped;
    for (request& r : sending) co_await r;
    const std::vector<std::byte> nothing;
    co_await world.send(nothing, 0, flood);  // the last one
    co_return;
  }
  std::vector<std::vector<std::byte>> in(posted, std::vector<std::byte>(bytes));
  std::deque<request> receiving;
  for (auto& buffer : in) receiving.push_back(world.irecv(buffer, any_source, any_tag));
  int asked = 0;
  int flooding = 2;
  for (std::size_t next = 0; asked < questions || flooding > 0; next = (next + 1) % posted) {
    const status st = co_await receiving.front();
    receiving.pop_front();
    int value = -1;
    if (st.tag == question) {
      TUTTI_EXPECT(st.source == 3);
      std::memcpy(&value, in[next].data(), sizeof value);
      TUTTI_EXPECT(value == asked);
      ++asked;
      co_await world.send(value, 3, question);
      if (asked == questions) {
        co_await world.send(value, 1, stop);
        co_await world.send(value, 2, stop);
      }
    } else if (st.bytes == 0) {
      --flooding;
    }
    receiving.push_back(world.irecv(in[next], any_source, any_tag));
  }
}

}  // namespace

TEST_CASE("fairness: messages are received in order of arrival, eager and rendezvous") {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{200'000}}) {
    CAPTURE(bytes);
    on_each_transport([bytes](communicator world) { return taken_as_they_came(std::move(world), bytes); });
  }
}

TEST_CASE("fairness: a slow sender is received among fast ones, whether receives or messages wait") {
  for (const std::size_t posted : {1, 16}) {
    for (const std::size_t bytes : {std::size_t{2'000}, std::size_t{100'000}}) {
      CAPTURE(posted);
      CAPTURE(bytes);
      on_each_transport([=](communicator world) { return slow_among_fast(std::move(world), posted, bytes); });
    }
  }
}
