// SPDX-License-Identifier: Apache-2.0
// A rank that knows the secret and sends what no rank sends: its link ends, and nothing else happens.
#include "core/handshake.hpp"
#include "core/socket_io.hpp"
#include "transport/tcp/listen_address.hpp"
#include "transport/tcp_fixture.hpp"

#include <sys/socket.h>

#include <optional>

namespace {

using namespace tcp_test;

// Rank 0 of two, of which only the handshake is real.
class hostile_rank {
 public:
  explicit hostile_rank(std::size_t connections = 1) : world_(2) {
    world_[1].info.tcp_connections = connections;
    world_.open();
  }

  // Makes one more connection to rank 1. Returns its number, or nothing if rank 1 does not want it.
  std::optional<std::size_t> connect(core::purpose what) {
    core::running_task meeting;
    outcome end{this, {}, {}, false};
    meeting.start(meet(&end, what), &outcome::reached, &end);
    REQUIRE(world_.drive([&] { return end.is_over; }));
    if (!end.socket) return std::nullopt;
    boost::system::error_code ignored;
    sockets_.emplace_back(end.socket->release(ignored));
    numbers_.push_back(0);
    return sockets_.size() - 1;
  }
  // Sends a frame with the first `bytes` bytes of its payload.
  void send(std::size_t connection, const frame& f, std::size_t bytes) {
    tcp::passage way;
    way.number = numbers_[connection]++;
    tcp::header head;
    tcp::encode(f, head, way);
    std::vector<std::byte> all(head.size() + bytes, std::byte{0x5a});
    std::memcpy(all.data(), head.data(), head.size());
    REQUIRE(::send(sockets_[connection].get(), all.data(), all.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(all.size()));
  }
  ranks& world() { return world_; }
  const recorder::state& seen_by_rank_1() { return world_[1].up.peers[0]; }

 private:
  struct outcome {
    static void reached(void* self, std::exception_ptr) noexcept {
      static_cast<outcome*>(self)->is_over = true;
    }
    hostile_rank* of;
    std::optional<core::stream_socket> socket;
    std::optional<core::stream_socket> being_made;
    bool is_over;
  };
  static tutti::task<> meet(outcome* end, core::purpose what) {
    rank& mine = end->of->world_[0];
    const auto deadline = core::clock::now() + limit;
    const std::string& to = mine.info.peers[1].tcp_endpoint;
    end->being_made = co_await core::connect(mine.loop.executor(), tcp::parse_endpoint(to), deadline);
    end->being_made->secure_with(mine.info.tls);
    const core::identity me{what, mine.info.id, mine.info.epoch, 0};
    co_await core::greet(*end->being_made, mine.info.secret, me, 1, deadline);
    end->socket = std::move(end->being_made);
  }

  ranks world_;
  std::vector<tutti::base::unique_fd> sockets_;
  std::vector<std::uint8_t> numbers_;
};

}  // namespace

TEST_CASE("tcp: a further connection brings data frames only") {
  for (const frame_kind kind : {frame_kind::eager, frame_kind::rts, frame_kind::leave, frame_kind::credit}) {
    CAPTURE(static_cast<int>(kind));
    hostile_rank peer(2);
    const auto first = peer.connect(core::purpose::tcp_link);
    const auto further = peer.connect(core::purpose::tcp_further);
    REQUIRE((first && further));
    // Half of it: the other half would be written when the layer above has ended the message.
    peer.send(*further, {.kind = kind, .length = 100}, kind == frame_kind::eager ? 50 : 0);
    REQUIRE(peer.world().drive({1}, [&] { return peer.seen_by_rank_1().closed; }));
    CHECK(peer.seen_by_rank_1().why == errc::protocol);
    CHECK_FALSE(peer.seen_by_rank_1().in_frame);
  }
}

TEST_CASE("tcp: a rank accepts no more connections than it would make") {
  for (const std::size_t connections : {1U, 3U}) {
    hostile_rank peer(connections);
    REQUIRE(peer.connect(core::purpose::tcp_link));
    for (std::size_t further = 1; further < connections; ++further)
      CHECK(peer.connect(core::purpose::tcp_further));
    CHECK_FALSE(peer.connect(core::purpose::tcp_further));
    CHECK_FALSE(peer.seen_by_rank_1().closed);
  }
}
