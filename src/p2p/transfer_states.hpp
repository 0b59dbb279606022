// SPDX-License-Identifier: Apache-2.0
// The state of one send and of one receive, wherever it lives: in an awaiting frame, in a request, in a
// collective.
#pragma once

#include "base/id_table.hpp"
#include "core/progress_engine.hpp"
#include "flight/layout.hpp"
#include "match/matcher.hpp"
#include "transport/link.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::flight {
class recorder;
}

namespace tutti::p2p {

class sends;

using transport::cancel_result;
using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;
using transport::redirect_result;
using fingerprint = transport::fingerprint_bytes;
inline constexpr fingerprint point_to_point{};  // of messages that are part of no collective
// The first byte of the fingerprint of a message to a message_taker; that of a collective differs. The other bytes
// are the sender's.
inline constexpr std::byte for_taker{0xff};

// The target of a destination buffer's owner pointer: what a message arrives into.
struct destination_owner {
  enum class kind : std::uint8_t { receive, unexpected };
  explicit destination_owner(kind k) noexcept : is(k) {}
  const kind is;
  int peer = -1;                  // the sender; of a receive, once matched
  std::uint64_t transfer_id = 0;  // while data frames are to come
  std::byte* data = nullptr;
  std::size_t capacity = 0;
  std::size_t unbegun = 0;   // bytes of its data frames whose header has not come
  std::size_t received = 0;  // of data frames that have come whole
};

struct send : core::completion, transport::outgoing {
  enum class phase : std::uint8_t {
    idle,
    queued,  // an eager frame waits in the link
    // the rts frame has left or waits in the link; the receiver has not answered, or reads the message itself
    rts_sent,
    streaming,  // the data frame is in the link
    draining,   // taken back, but its link still reads the buffer
    done        // complete: delivered, or in the engine's ready list
  };
  phase at = phase::idle;
  int peer = -1;
  sends* through = nullptr;
  std::uint64_t transfer_id = 0;
  const std::byte* data = nullptr;  // the whole message; `outgoing` describes the frame in flight
  std::size_t bytes = 0;
};

struct receive : core::completion, match::posted_receive, destination_owner {
  enum class phase : std::uint8_t {
    idle,
    posted,    // no message yet
    arriving,  // an eager frame is arriving into the buffer
    cts_sent,  // the sender was told to send, or the link fetches; data frames go into the buffer
    draining,  // detached from its message, but its link still writes the buffer
    done
  };
  receive() noexcept : destination_owner(kind::receive) {}

  phase at = phase::idle;
  bool lost = false;     // its message is lost for lack of memory: the owner is told so, or the link ends
  bool matched = false;  // its message is one that a probe had taken: it waits for no other
  fingerprint expected{};
  // Records how much of a long message has come; null: not recorded.
  flight::recorder* recorder = nullptr;
  flight::handle record;
};

struct probe_tag;

// A message, or the rts frame of one, without a receive: it came before its receive, or its receive gave it
// up. `head.kind` is eager, rts, or data. data: a message that its sender was told to send to a
// receive that has since ended. An incomplete message arrives into `data`, whose memory is kept when the node is
// reused: as long as it has a transfer id, or its peer is `arriving` in it. A queued rts frame has a transfer id, too,
// by which its end is found, also while it is held.
struct unexpected : match::unexpected_message, destination_owner {
  unexpected() noexcept : destination_owner(kind::unexpected) {}
  ~unexpected() { delete[] data; }

  frame head;
  bool counted = false;  // among those of its peer that wait for a receive
  bool held = false;     // a probe has taken it out of the queue
  bool drains = false;   // it has been redirected, but its link still writes `data`
  bool ended = false;    // and it is recycled when the link does not
  bool lost = false;     // and the rest of it will not come
};

// Takes the messages of one context that no receive has been posted for, in place of the queue.
class message_taker {
 public:
  // Holds the message, which may still be arriving. Ends it later, not inside this call: by endpoint::start of a
  // receive for it, or by endpoint::put_back.
  virtual void take(unexpected& held) noexcept = 0;
  // The context closes: puts back what it holds, and ends its transfers.
  virtual void context_closes() noexcept = 0;

 protected:
  ~message_taker() = default;
};

// Waits for a message and leaves it in the queue, or takes it.
struct probe : core::completion, base::list_hook<probe_tag> {
  match::envelope wanted{};
  bool takes = false;  // set by its owner before the start
  // The message that it has taken. The owner sets it to null when it takes over the message.
  unexpected* taken = nullptr;
};

// What a transfer id on the receiving side names: a receive, or a message that its receive gave up.
using receive_ids = base::id_table<destination_owner>;

// Whether a transfer ends with this code because its owner ended it. With any other, something is broken, and
// messages are lost with it.
inline bool given_up(errc code) noexcept { return code == errc::cancelled || code == errc::timed_out; }

// Ends a wait that core::progress_engine::begin_wait() began.
inline void stop_waiting(core::progress_engine& engine, core::completion& a) noexcept {
  static_cast<base::list_hook<core::waiting_tag>&>(a).unlink();
  engine.end_wait();
}

// Ends a send or a receive, for which begin_wait() was called and which `ids` may name.
template <class Ids, class Transfer>
void settle(core::progress_engine& engine, Ids& ids, Transfer& t) noexcept {
  if (t.transfer_id != 0) ids.erase(t.transfer_id);
  t.transfer_id = 0;
  t.at = Transfer::phase::done;
  stop_waiting(engine, t);
}

}  // namespace tutti::p2p
