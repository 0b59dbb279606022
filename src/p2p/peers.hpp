// SPDX-License-Identifier: Apache-2.0
// peers: the ranks of the world as this rank sees them: their links, why they have gone, the credit for eager
// messages in both directions, and their traffic. Sends the frames that belong to no transfer.
//
// Invariants: a peer goes once, and its reason stays. No such frame is sent to a peer that has gone or is lost.
// eager_out <= eager_window.
#pragma once

#include "base/limits.hpp"
#include "base/object_pool.hpp"
#include "base/sparse_array.hpp"
#include "p2p/control_messages.hpp"
#include "p2p/transfer_states.hpp"
#include "transport/link.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::p2p {

using namespace limits::messages;

// What a message takes of the window of eager ones.
constexpr std::uint64_t cost_of(std::uint64_t bytes) noexcept { return bytes + node_cost; }

// Finds the link to a rank of the world.
class router {
 public:
  virtual transport::link& link_to(int peer) = 0;
  virtual std::string describe(int peer) const = 0;  // "rank 2 (host b, pid 77)"
  // Whether `peer`, which cannot be reached, is known to have left in order.
  virtual bool has_left(int /*peer*/) const noexcept { return false; }
  // `peer` has sent this message; its payload is valid until this returns.
  virtual void agree(int /*peer*/, std::uint32_t /*context*/, const agreement_message&) noexcept {}
  // The others have made the communicator of this message context, and know that some rank lacks it. Returns whether
  // this rank is one, and has renounced it.
  virtual bool renounce(std::uint32_t /*context*/) noexcept { return false; }
  // The link to `peer` has closed, and all communicators have been told.
  virtual void peer_closed(int /*peer*/) noexcept {}

 protected:
  ~router() = default;
};

// Messages and their bytes between this rank and another.
struct peer_counters {
  std::uint64_t sends = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t receives = 0;
  std::uint64_t bytes_received = 0;
  // messages short enough for eager that went by rendezvous for lack of credit
  std::uint64_t without_credit = 0;
};

// Why a peer sends and receives nothing more.
struct departure {
  errc code = errc::success;
  std::string text;
};

struct peer_state {
  departure gone;                   // set when its link ends
  transport::link* link = nullptr;  // until its end, once a message was sent
  bool in_touch = false;            // anything was sent to it or came from it
  bool heard = false;               // a frame has come from it
  bool lost = false;                // nothing more is accepted from it; its link is about to close
  peer_counters counters;
  std::uint64_t eager_out = 0;  // cost of eager messages that this rank sent and the peer has not credited
  // cost of messages taken here since the last credit, which is sent for credit_at_once
  std::uint64_t owed = 0;
  std::uint64_t eager_in = 0;  // cost of eager messages that have come and are not credited; <= eager_window
  std::size_t waiting = 0;     // its messages that came before their receive and still wait
  std::size_t control_bytes = 0;  // memory of frames without a transfer that its link has not released
  // destination of the eager frame whose header has come, but not all of its payload
  destination_owner* arriving = nullptr;
};

class peers {
 public:
  peers(router& routes, int rank, int size)
      : routes_(routes), rank_(rank), all_(static_cast<std::size_t>(size)) {}

  peer_state& operator[](int peer) noexcept { return all_[static_cast<std::size_t>(peer)]; }
  const peer_state& operator[](int peer) const noexcept {
    const peer_state* const known = all_.find(static_cast<std::size_t>(peer));
    return known != nullptr ? *known : unmet_;
  }
  // Calls f(peer, const peer_state&) for all that may be in touch with this rank.
  template <class F>
  void for_each(F f) const {
    all_.for_each([&f](std::size_t peer, const peer_state& p) { f(static_cast<int>(peer), p); });
  }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(all_.size()); }

  bool gone(int peer) const noexcept { return (*this)[peer].gone.code != errc::success; }
  bool failed(int peer) const noexcept { return gone(peer) && (*this)[peer].gone.code != errc::peer_left; }
  bool any_gone() const noexcept { return gone_ > 0; }
  bool in_touch(int peer) const noexcept { return (*this)[peer].in_touch; }
  std::string describe(int peer) const { return routes_.describe(peer); }
  transport::link& link_to(int peer) const { return routes_.link_to(peer); }

  // Records that the link to `peer` has ended. Returns false if that is known.
  bool close(int peer, errc why, std::string text) noexcept;
  // Sends a frame that belongs to no transfer; best effort.
  void post(int peer, control_frame f) noexcept;
  // Sends the frame of this kind about a transfer: its id at the sender of the message, and at the receiver.
  void answer(int peer, frame_kind kind, std::uint32_t context, std::uint64_t transfer_id,
              std::uint64_t other_transfer_id = 0) noexcept;
  // Breaks the connection to `peer` for lack of memory for `what`: without it messages would be incomplete or
  // out of order.
  void lose(int peer, const char* what) noexcept;
  // Breaks the connection to `peer`, which has sent `what`: no rank of this version does.
  void reject(int peer, const char* what) noexcept;

  // An eager message of the peer has begun to come. Returns false if the peer has no credit for it: it is rejected.
  bool use_credit(int peer, std::uint64_t bytes) noexcept { return use_credit(peer, (*this)[peer], bytes); }
  bool use_credit(int peer, peer_state& from, std::uint64_t bytes) noexcept {
    from.eager_in += cost_of(bytes);
    if (from.eager_in <= eager_window) [[likely]]
      return true;
    reject(peer, "more messages than it has credit for");
    return false;
  }
  // A message of the peer is to wait for its receive. Returns false if too many do: the connection is broken off.
  bool admit_waiting(int peer) noexcept;

  // An eager message of the peer needs no memory here any more.
  void give_credit(int peer, std::uint64_t bytes) noexcept { give_credit(peer, (*this)[peer], bytes); }
  void give_credit(int peer, peer_state& to, std::uint64_t bytes) noexcept {
    to.owed += cost_of(bytes);
    if (to.owed >= credit_at_once) send_credit(peer);
  }
  // Credits the peer with what is owed to it, if only to send something.
  void send_credit(int peer) noexcept;
  // The peer needs no memory for so much any more.
  void take_credit(int peer, std::uint64_t cost) noexcept {
    std::uint64_t& out = (*this)[peer].eager_out;
    out -= std::min(out, cost);
  }

  std::size_t controls_in_use() const noexcept { return controls_.in_use(); }

 private:
  void break_off(int peer, errc why, std::string text) noexcept;

  // A frame that belongs to no transfer, until its link has released it.
  struct control : transport::outgoing {
    std::size_t bytes() const noexcept { return sizeof(control) + payload_bytes.capacity(); }
    base::object_pool<control>* from = nullptr;
    peer_state* to = nullptr;
    std::vector<std::byte> payload_bytes;
  };

  router& routes_;
  const int rank_;
  base::sparse_array<peer_state> all_;
  inline static const peer_state unmet_{};
  std::size_t gone_ = 0;  // number of peers that have gone
  base::object_pool<control> controls_;
};

}  // namespace tutti::p2p
