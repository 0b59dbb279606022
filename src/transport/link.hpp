// SPDX-License-Identifier: Apache-2.0
// What a transport is to the layers above: ordered, reliable frames to one peer, and a place for arriving
// payload.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/ring_copy.hpp"
#include "transport/peer_health.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tutti/error.hpp>

namespace tutti::transport {

enum class frame_kind : std::uint8_t {
  eager = 1,  // a whole message: `length` bytes of payload follow
  rts,  // a message of `length` bytes is ready at the sender under `transfer_id` (rendezvous); no payload.
        // `other_transfer_id`: the link's name for the message where the receiver can read it itself, else 0
  cts,  // the receiver's answer: send the message `transfer_id`, to my `other_transfer_id`
  refuse,  // the receiver's answer: the message `transfer_id` is not wanted any more, count it as sent
  data,    // `length` bytes of the message that the receiver knows as `transfer_id`, from byte
           // `other_transfer_id` of it
  cancel,  // the sender takes back the announced message `transfer_id`; `other_transfer_id`: receiver's
           // transfer id if it has one
  fail,    // the communicator `context` has failed at the sender; `tag`: reason; payload: text
  leave,   // the sender's world ends normally: nothing follows
  credit,  // `length` more bytes of eager messages may be sent to me
  notice,  // the sender has been waiting in collective `tag` of `context`, which has this fingerprint
  ask,     // where is the receiver with collective `tag` of `context`?
  tell,    // the answer: `transfer_id`, one of the p2p layer's numbers; `other_transfer_id` is the last
           // collective that
  // was called, `fingerprint` its fingerprint; `length`: 1 + the rank that it waits for, or 0
  fin,  // the receiver has read the announced message `transfer_id` from the sender's own memory: it is sent
  agree,      // the members of `context` agree on who is left of it, in their round `tag`; the payload is the
              // upper layers'
  heartbeat,  // does the receiver's loop turn? Between links, not for the layer above
  alive       // the answer
};

// Names the collective a frame is part of: its kind, root, element type, reduction and count.
struct fingerprint_bytes : std::array<std::byte, 16> {
  // Two words; std::array's own goes byte by byte, on the way of every message.
  friend constexpr bool operator==(const fingerprint_bytes& a, const fingerprint_bytes& b) noexcept {
    using words = std::array<std::uint64_t, 2>;
    const auto x = std::bit_cast<words>(a), y = std::bit_cast<words>(b);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
  }
};

struct frame {
  frame_kind kind = frame_kind::eager;
  std::uint32_t context = 0;
  std::int32_t tag = 0;
  std::uint64_t length = 0;
  std::uint64_t transfer_id = 0;
  std::uint64_t other_transfer_id = 0;
  // What collective this is part of (all zero for point to point), compared by the receiver before data
  // moves.
  fingerprint_bytes fingerprint{};
};

struct outgoing_tag;

// A frame to be sent, with its payload, owned by the caller until `done` is called or submit() answers true.
struct outgoing : base::list_hook<outgoing_tag> {
  frame head;
  // head.length bytes for eager, data, fail and agree frames. For rts frames the message itself, which
  // does not leave with the frame: a link that reaches the peer through memory may let the peer read it there
  // (see fetch).
  const std::byte* payload = nullptr;
  // The payload has left (it is in the peer's memory, in a ring, or in the kernel) and is not referenced any
  // more; false: the link has closed instead.
  void (*done)(outgoing& self, bool sent) noexcept = nullptr;
  std::uint64_t progress = 0;  // for the link: payload bytes that have left
  std::uint64_t shown =
      0;  // for the link: under which name the peer may read an announced payload; 0: it may not
};

// Where the payload of an arriving frame goes: the first `room` bytes to `at`, the rest nowhere.
struct destination_buffer {
  std::byte* at = nullptr;
  std::size_t room = 0;
  void* owner = nullptr;  // the upper layer's name for it
};

// Of memory for a whole message, the part that a frame of it fills.
inline destination_buffer part_of(destination_buffer whole, const frame& f) noexcept {
  if (f.kind != frame_kind::data || whole.at == nullptr) return whole;
  const auto from = static_cast<std::size_t>(std::min<std::uint64_t>(f.other_transfer_id, whole.room));
  whole.at += from;
  whole.room -= from;
  return whole;
}

// What becomes of a frame that is taken back.
enum class cancel_result : std::uint8_t {
  gone,    // it does not arrive, or (data) its end does not
  leaves,  // it had begun to leave on a stream and cannot be stopped: the peer gets all of it, its end from a
           // copy
  arrived  // an rts frame's message, which the peer has read in this side's memory to its end: it has
           // arrived
};

// The upper layer. Called from the loop only, never from inside submit().
class inbound {
 public:
  // A frame's header has come. For frames with payload, says where that goes. Before its end() no other frame
  // of the peer begins, except that data frames come side by side with each other and with other frames.
  virtual destination_buffer begin(int peer, const frame& head) noexcept = 0;
  // A frame that has come whole: `payload` (head.length bytes, null where the kind has none) is there until
  // this returns. The same as begin(), a copy and end().
  virtual void deliver(int peer, const frame& head, const std::byte* payload) noexcept {
    const destination_buffer where = begin(peer, head);
    const std::size_t bytes = payload != nullptr ? std::min<std::size_t>(where.room, head.length) : 0;
    if (bytes > 0) base::copy_out(where.at, payload, bytes);
    end(peer, head, where);
  }
  // All of the frame has come, and has been put where begin() said.
  virtual void end(int peer, const frame& head, const destination_buffer& where) noexcept = 0;
  // The link is gone and everything that had come through it has been delivered. `why` is peer_left after a
  // leave frame, else peer_failed, timed_out (of connecting), unauthorized or protocol.
  virtual void closed(int peer, errc why, std::string text) noexcept = 0;

 protected:
  ~inbound() = default;
};

struct link_counters {
  std::uint64_t retries = 0;  // attempts to connect that came after one that had failed
  std::uint64_t stalls = 0;   // times that frames could not leave for want of room, and then waited
};

// One peer. Frames submitted before the connection stands wait for it; connecting begins with the first
// submit(). Frames are delivered in the order of submission, except that a data frame longer than the link's
// slice is sent as several data frames (with other_transfer_id moved on), which come in any order, side by
// side and with other frames between them, also with such as were submitted later.
class link {
 public:
  virtual ~link() = default;
  virtual const char* transport_name() const noexcept = 0;
  // True: the frame has left, payload and all, and `done` will not be called. False: queued.
  virtual bool submit(outgoing& frame) noexcept = 0;
  // Sends a frame of which the link keeps nothing, an rts frame or data excepted, when that is possible at
  // once and nothing waits before it. False: nothing was done; submit() takes it.
  virtual bool send_now(const frame& /*head*/, const std::byte* /*payload*/) noexcept { return false; }
  // Takes back a queued frame: on return its payload is not referenced. Slices of a data frame that had left
  // stay sent; a frame that had begun to leave on a stream is finished from a copy. For an rts frame also
  // after it has left: a peer that was reading the payload itself will not get to its end with success,
  // unless it is there already. Says what becomes of the frame; of one that had left otherwise, `gone`.
  // Harmless when nothing is to be done.
  virtual cancel_result cancel(outgoing& frame) noexcept = 0;
  // The receiver's side of an rts frame: gets the message without asking the sender for it, where the peer
  // lets this side read its memory. True: the message will arrive as if it had been asked for with
  // `transfer_id`, as data frames in slices, begun from the loop, or as a cancel frame; begin() is asked
  // before every slice, so that a receive that has ended gets nothing more. The sender is told. False: not
  // possible, ask with a cts frame.
  virtual bool fetch(const frame& /*announced*/, std::uint64_t /*transfer_id*/) noexcept { return false; }
  // The message that is being fetched for `transfer_id` is read no further and stays with its sender, as if
  // it had not been begun: it can be fetched again, or asked for. True: `rts` is its rts frame. False:
  // nothing is fetched for it.
  virtual bool stop_fetching(std::uint64_t /*transfer_id*/, frame& /*announced*/) noexcept { return false; }
  // The payload of frames being received that goes to `owner` goes to `instead` from now on (an empty
  // destination buffer: nowhere), which is memory for the whole message, of which a data frame has its part
  // at other_transfer_id; what has come is copied there. On return the old place is not referenced, and the
  // frames' end() will name the new one. False: no frame of `owner` is half way.
  virtual bool redirect_destination(void* owner, const destination_buffer& instead) noexcept = 0;
  // No message longer than this many bytes is sent eagerly.
  virtual std::size_t eager_limit() const noexcept = 0;
  // Whether this message is better sent eagerly than announced.
  virtual bool sends_eagerly(const void* /*data*/, std::size_t bytes) const noexcept {
    return bytes <= eager_limit();
  }
  virtual bool closed() const noexcept = 0;
  // Frames wait to leave, for room or for the connection.
  virtual bool has_queue() const noexcept { return false; }

  // The peer is waited for: how is it? Asks it, or its host, where that is needed for the answer, which the
  // next look then has. Not from inside a call upward.
  virtual peer_health examine(const health_check&) noexcept { return {}; }
  // It is waited for no more.
  virtual void rest() noexcept {}
  // Ends the link for this reason, from the next round of the loop on, as if the peer had died.
  virtual void give_up(errc /*why*/, std::string /*text*/) noexcept {}

  const link_counters& counters() const noexcept { return counters_; }
  void count_retry() noexcept { ++counters_.retries; }

 protected:
  void count_stall() noexcept { ++counters_.stalls; }

 private:
  link_counters counters_;
};

}  // namespace tutti::transport
