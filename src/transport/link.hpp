// SPDX-License-Identifier: Apache-2.0
// link: what a transport offers the layers above: ordered, reliable frames to one peer, and destinations for
// arriving payload.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/ring_copy.hpp"
#include "core/platform.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tutti/error.hpp>

namespace tutti::transport {

enum class frame_kind : std::uint8_t {
  // a whole message: `length` bytes of payload follow
  eager = 1,
  // a message of `length` bytes is ready at the sender as `transfer_id` (rendezvous); no payload.
  // `other_transfer_id`: the link's name for it if the receiver can read it itself, else 0
  rts,
  // the receiver's answer: send the message `transfer_id`, to my `other_transfer_id`
  cts,
  // the receiver's answer: the message `transfer_id` is no longer wanted, count it as sent
  refuse,
  // `length` bytes of the message that the receiver knows as `transfer_id`, from its byte
  // `other_transfer_id` on
  data,
  // the sender takes back the message `transfer_id`, whose rts has gone; `other_transfer_id`: the receiver's transfer
  // id, if there is one
  cancel,
  // the communicator `context` has failed at the sender; `tag`: reason; payload: text
  fail,
  // the sender's world ends normally: nothing follows
  leave,
  // `length` more bytes of eager messages may be sent to the sender of this frame
  credit,
  // the sender has been waiting in collective `tag` of `context`, which has this fingerprint
  notice,
  // asks how far the receiver is with collective `tag` of `context`
  ask,
  // the answer: `transfer_id`, one of the p2p layer's numbers; `other_transfer_id`: the last collective that
  // was called, `fingerprint`: its fingerprint; `length`: 1 + the rank that it waits for, or 0
  tell,
  // the receiver has read the message `transfer_id` from the sender's own memory: it is sent
  fin,
  // the members of `context` agree on who is left, in their round `tag`; the payload belongs to the upper
  // layers
  agree,
  // asks whether the receiver's loop turns; between links, not for the layer above
  heartbeat,
  // the answer
  alive
};

// Whether a number that has come is a kind of frame.
constexpr bool is_frame_kind(std::uint32_t number) noexcept {
  return number >= static_cast<std::uint32_t>(frame_kind::eager) &&
         number <= static_cast<std::uint32_t>(frame_kind::alive);
}

// Whether `length` bytes of payload follow a frame of this kind.
constexpr bool carries_payload(frame_kind kind) noexcept {
  return kind == frame_kind::eager || kind == frame_kind::data || kind == frame_kind::fail ||
         kind == frame_kind::agree;
}

// Identifies the collective that a frame is part of: kind, root, element type, reduction and count.
struct fingerprint_bytes : std::array<std::byte, 16> {
  // Compares two words; the operator of std::array compares bytes, in the path of every message.
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
  // The collective that this is part of (all zero for point to point); the receiver compares it before data
  // move.
  fingerprint_bytes fingerprint{};
};

// The bytes of payload that follow a frame's header.
inline std::uint64_t payload_bytes(const frame& f) noexcept { return carries_payload(f.kind) ? f.length : 0; }

// The next frame of `f`, of whose payload `from` bytes have left. Data frames leave in slices of at most `slice`
// bytes.
inline frame next_slice(frame f, std::uint64_t from, std::uint64_t slice) noexcept {
  if (f.kind != frame_kind::data) return f;
  f.length = std::min(f.length - from, slice);
  f.other_transfer_id += from;
  return f;
}

struct outgoing_tag;

// A frame to be sent with its payload. The caller owns both until `done` is called or submit() returns true.
struct outgoing : base::list_hook<outgoing_tag> {
  frame head;
  // head.length bytes if its kind carries payload. For an rts frame it is the message itself,
  // which does not leave with the frame: a link over shared memory may let the peer read it in place (see
  // fetch).
  const std::byte* payload = nullptr;
  // Called when the payload has left (it is in the peer's memory, in a ring or in the kernel) and is no
  // longer referenced. `sent` is false if the link has closed instead.
  void (*done)(outgoing& self, bool sent) noexcept = [](outgoing&, bool) noexcept {};
  std::uint64_t progress = 0;  // for the link: payload bytes that have left
  // for the link: the name by which the peer may read the payload of an rts frame; 0: it may not
  std::uint64_t shown = 0;
};

// Whether the frame leaves as several, between which others may pass.
inline bool is_long(const outgoing& f, std::uint64_t slice) noexcept {
  return f.head.kind == frame_kind::data && f.head.length > slice;
}

// Where the payload of an arriving frame goes: its first `room` bytes to `at`, the rest is dropped.
struct destination_buffer {
  std::byte* at = nullptr;
  std::size_t room = 0;
  void* owner = nullptr;  // the upper layer's name for it
};

// Moves the destination of a frame, of whose payload `come` bytes have come, to its part of `whole`, memory for the
// whole message. What has come is copied there.
inline void move_destination(destination_buffer& where, std::size_t come, destination_buffer whole,
                             const frame& f) noexcept {
  if (f.kind == frame_kind::data && whole.at != nullptr) {
    const auto from = static_cast<std::size_t>(std::min<std::uint64_t>(f.other_transfer_id, whole.room));
    whole.at += from;
    whole.room -= from;
  }
  const std::size_t here = std::min({come, where.room, whole.room});
  if (here > 0) std::memcpy(whole.at, where.at, here);
  where = whole;
}

// What happens to a frame that is taken back.
enum class cancel_result : std::uint8_t {
  gone,  // it does not arrive, or (data) its end does not
  // it had begun to leave on a stream and cannot be stopped: the peer gets all of it, the rest from a copy
  leaves,
  arrived,  // an rts frame's message, which the peer has read to its end in this side's memory
  // A data frame whose payload hardware or the peer still reads. `done` is called when they no longer do: with
  // `sent` if the peer gets all of it.
  drains
};

// What happens to the old place of payload that is being received.
enum class redirect_result : std::uint8_t {
  none,   // no frame of this owner is partly received
  moved,  // it is not referenced any more
  // It is still written. inbound::released() is called when it is not. What has come is then in the new place.
  drains
};

// The upper layer. Called only from the loop, never from inside submit().
class inbound {
 public:
  // A frame's header has come. For a frame with payload, returns its destination. No other frame of the peer
  // begins before its end(), except that data frames may interleave with each other and with other frames.
  virtual destination_buffer begin(int peer, const frame& head) noexcept = 0;
  // A complete frame has come. `payload` has head.length bytes (null if the kind has none) and is valid until
  // this returns. The same as begin(), a copy and end(). Not inline, so that an override may end in a jump.
  [[gnu::noinline]] virtual void deliver(int peer, const frame& head, const std::byte* payload) noexcept {
    const destination_buffer where = begin(peer, head);
    const std::size_t bytes = payload != nullptr ? std::min<std::size_t>(where.room, head.length) : 0;
    if (bytes > 0) base::copy_out(where.at, payload, bytes);
    end(peer, head, where);
  }
  // All of the frame has come, and is where begin() said.
  virtual void end(int peer, const frame& head, const destination_buffer& where) noexcept = 0;
  // Nothing writes any more to the old place of `owner`, which was draining (link::redirect_destination). The
  // default is for layers above links that never drain.
  virtual void released(void* /*owner*/) noexcept {}
  // The link has ended, and everything that came through it has been delivered. `why` is peer_left after a
  // leave frame; otherwise peer_failed, timed_out (of connecting), unauthorized or protocol.
  virtual void closed(int peer, errc why, std::string text) noexcept = 0;

 protected:
  ~inbound() = default;
};

// The health of a link's peer, as far as this side can tell. Checked a few times a second for peers that an
// operation waits for.
struct peer_health {
  enum class condition {
    unknown,        // there is no connection, or nothing can be said over it
    well,           // its loop has turned, or it has answered
    resting,        // its loop sleeps until an event for it
    not_turning,    // its loop, whose turns this side sees, has not turned for `since`
    not_answering,  // its loop was asked and has not answered for `since`: busy, or stopped
    unresponsive    // its host was asked and nothing has come from it for `since`: dead, or cut off
  };
  condition is = condition::unknown;
  core::duration since{};
};

// How to check.
struct health_check {
  core::time_point now;
  // This rank itself has not run since the last check: what did not come meanwhile says nothing.
  bool again = false;
  // Whether to ask the peer's loop, which wakes it, or only its host.
  bool loop = true;
};

struct link_counters {
  std::uint64_t retries = 0;  // attempts to connect after one that failed
  std::uint64_t stalls = 0;   // times frames could not leave for lack of room, and waited
};

// The link to one peer. The first submit() starts connecting; frames submitted before that has succeeded
// wait. Frames are delivered in the order of submission, except long data frames. A data frame longer than
// the link's slice is sent as several data frames, with other_transfer_id advanced. These come in any order
// and may interleave with other frames, also with frames submitted later.
class link {
 public:
  virtual ~link() = default;
  // Submits a frame. Returns true if it has left with its payload; `done` is then not called. Otherwise it is
  // queued.
  virtual bool submit(outgoing& frame) noexcept = 0;
  // Sends a frame of which the link keeps nothing, if that is possible at once and nothing waits before it.
  // Not for rts and data frames. Returns false if nothing was done: use submit().
  virtual bool send_now(const frame& /*head*/, const std::byte* /*payload*/) noexcept { return false; }
  // Takes back a queued frame; on return its payload is not referenced, unless it drains. Slices of a data
  // frame that have left stay sent. A frame that had begun to leave on a stream is finished from a copy. Also
  // works for an rts frame that has left: a peer that is reading the payload itself then fails, unless it has
  // finished. Returns what happens to the frame; `gone` for others that had left. Harmless if nothing is to be
  // done.
  virtual cancel_result cancel(outgoing& frame) noexcept = 0;
  // Waits until the payload of a frame that drains is not referenced any more, and calls nothing upward meanwhile,
  // nor `done` of this frame. Returns whether the peer gets all of it. If the peer does nothing for too long, the
  // link ends instead.
  virtual bool drain(outgoing& /*frame*/) noexcept { return false; }
  // Fetches the message of an rts frame without asking the sender, if the peer lets this side read its
  // memory. Returns true if so. The message then arrives as if it had been asked for with `transfer_id`: as
  // data frames in slices, started from the loop, or as a cancel frame. begin() is called before every slice,
  // so a receive that has ended gets nothing more. The sender is told. Returns false if not possible: ask
  // with a cts frame.
  virtual bool fetch(const frame& /*rts*/, std::uint64_t /*transfer_id*/) noexcept { return false; }
  // Stops fetching the message for `transfer_id`. It stays with its sender as if it had not been started, and
  // can be fetched or asked for again. Returns true with its rts frame; false if nothing is being fetched for
  // it.
  virtual bool stop_fetching(std::uint64_t /*transfer_id*/, frame& /*rts*/) noexcept { return false; }
  // Redirects the payload of frames being received for `owner` to `instead`, memory for the whole message. A
  // data frame fills its part at other_transfer_id. An empty destination drops the payload. Data that have
  // come are copied there. On return the old place is not referenced, unless it drains, and end() will name the
  // new one. Links that deliver frames whole have nothing to redirect.
  virtual redirect_result redirect_destination(void* /*owner*/,
                                               const destination_buffer& /*instead*/) noexcept {
    return redirect_result::none;
  }
  // As drain(), for the old place of `owner`: released() is not called for it.
  virtual void drain_destination(void* /*owner*/) noexcept {}
  // Whether this message is better sent eagerly than by rendezvous.
  virtual bool sends_eagerly(const void* data, std::size_t bytes) const noexcept = 0;
  virtual bool closed() const noexcept = 0;
  // Whether frames wait to leave, for room or for the connection.
  virtual bool has_queue() const noexcept { return false; }

  // Reports the health of a peer that an operation waits for. Asks the peer or its host if needed; the next
  // check has the answer. Not called from inside a call upward.
  virtual peer_health examine(const health_check&) noexcept { return {}; }
  // No operation waits for the peer any more.
  virtual void rest() noexcept {}
  // Ends the link for this reason, from the next round of the loop on, as if the peer had died.
  virtual void give_up(errc /*why*/, std::string /*text*/) noexcept {}

  link_counters counters;
};

}  // namespace tutti::transport
