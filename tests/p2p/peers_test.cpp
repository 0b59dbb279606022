// SPDX-License-Identifier: Apache-2.0
// Links, departures and credit of peers.
#include "p2p/peers.hpp"
#include "p2p/memory_links.hpp"

#include <doctest/doctest.h>
#include <string>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test::memory_links;

namespace {

struct leaving_route final : p2p::router {
  transport::link& link_to(int) override { return link; }
  std::string describe(int peer) const override { return "rank " + std::to_string(peer); }
  bool has_left(int) const noexcept override { return left; }
  memory_link link;
  bool left = false;
};

// Rank 0 of a world of 2, and its link to rank 1.
struct fixture {
  ~fixture() { routes.link.hand_back(); }
  // Sends the frames that wait in the link; returns their number.
  int send_all() {
    int frames = 0;
    while (routes.link.push()) ++frames;
    return frames;
  }
  leaving_route routes;
  p2p::peers peers{routes, 0, 2};
};

}  // namespace

TEST_CASE("peers: a peer goes once, with its first reason") {
  fixture f;
  CHECK_FALSE(f.peers.any_gone());
  CHECK(f.peers.close(1, errc::peer_failed, "died"));
  CHECK_FALSE(f.peers.close(1, errc::peer_left, "left"));
  CHECK(f.peers.any_gone());
  CHECK(f.peers.gone(1));
  CHECK(f.peers.failed(1));
  CHECK(f.peers[1].gone.text == "died");
}

TEST_CASE("peers: one that was never heard and is known to have left has not failed") {
  fixture f;
  f.routes.left = true;
  f.peers.close(1, errc::peer_failed, "connection refused");
  CHECK(f.peers.gone(1));
  CHECK_FALSE(f.peers.failed(1));
}

TEST_CASE("peers: nothing is sent to a peer that has gone or is lost") {
  fixture f;
  f.peers.answer(1, frame_kind::refuse, context, 5);
  CHECK(f.peers.in_touch(1));
  CHECK(f.send_all() == 1);
  f.peers.lose(1, "a test");
  CHECK(f.routes.link.given_up == errc::resources);
  f.peers.answer(1, frame_kind::refuse, context, 5);
  CHECK(f.send_all() == 0);
  f.peers[1].lost = false;
  f.peers.close(1, errc::peer_left, "left");
  f.peers.answer(1, frame_kind::refuse, context, 5);
  CHECK(f.send_all() == 0);
  CHECK(f.peers.controls_in_use() == 0);
}

TEST_CASE("peers: credit is sent for a part of the window at a time, and never exceeds what is out") {
  fixture f;
  f.peers.give_credit(1, p2p::credit_at_once - p2p::node_cost - 1);
  CHECK(f.send_all() == 0);
  f.peers.give_credit(1, 1);
  CHECK(f.send_all() == 1);
  CHECK(f.peers[1].owed == 0);
  f.peers[1].eager_out = 100;
  f.peers.take_credit(1, 60);
  CHECK(f.peers[1].eager_out == 40);
  f.peers.take_credit(1, 60);
  CHECK(f.peers[1].eager_out == 0);
}

TEST_CASE("peers: a peer without credit that sends is rejected") {
  fixture f;
  const std::uint64_t half = p2p::eager_window / 2 - p2p::node_cost;
  for (int i = 0; i < 20; ++i) {  // as much as is credited
    CHECK(f.peers.use_credit(1, half));
    f.peers.give_credit(1, half);
  }
  CHECK(f.peers.use_credit(1, half));
  CHECK(f.peers.use_credit(1, half));
  CHECK(f.routes.link.given_up == errc::success);
  CHECK_FALSE(f.peers.use_credit(1, 0));
  CHECK(f.routes.link.given_up == errc::protocol);
}

TEST_CASE("peers: so many messages of one peer wait for a receive, and no more") {
  fixture f;
  for (std::size_t i = 0; i < p2p::most_waiting_messages; ++i)
    if (!f.peers.admit_waiting(1)) FAIL("message ", i);
  CHECK(f.routes.link.given_up == errc::success);
  CHECK_FALSE(f.peers.admit_waiting(1));
  CHECK(f.routes.link.given_up == errc::resources);
}

TEST_CASE("peers: answers to a peer that reads nothing take a bounded amount of memory") {
  fixture f;
  const std::vector<std::byte> long_text(1 << 20);
  for (int i = 0; i < 1000 && !f.peers[1].lost; ++i) {
    CHECK(f.peers[1].control_bytes <= p2p::most_control_bytes);
    p2p::control_frame answer{{.kind = frame_kind::fail, .length = long_text.size()}, long_text};
    f.peers.post(1, std::move(answer));
  }
  CHECK(f.routes.link.given_up == errc::resources);
  while (f.routes.link.push()) {
  }
  CHECK(f.peers[1].control_bytes == 0);
}
