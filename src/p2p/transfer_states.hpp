// SPDX-License-Identifier: Apache-2.0
// The state of one send and of one receive, wherever it lives: in an awaiting frame, in a request, in a
// collective.
#pragma once

#include "core/engine.hpp"
#include "flight/handle.hpp"
#include "match/matcher.hpp"
#include "transport/link.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::flight {
class recorder;
}

namespace tutti::p2p {

class endpoint;

using fingerprint = transport::fingerprint_bytes;

// What a destination buffer's owner pointer points to.
struct destination_owner {
  enum class kind : std::uint8_t { receive, unexpected };
  explicit destination_owner(kind k) noexcept : is(k) {}
  const kind is;
};

struct send : core::completion, transport::outgoing {
  enum class phase : std::uint8_t {
    idle,
    queued,     // an eager frame waits in the link
    rts_sent,   // the rts frame has left or waits in the link; the receiver has not asked, or reads it
                // itself
    streaming,  // the data frame is in the link
    done        // complete, delivered or in the engine's ready list
  };
  phase at = phase::idle;
  int peer = -1;
  endpoint* through = nullptr;
  std::uint64_t transfer_id = 0;
  const std::byte* data = nullptr;  // the whole message; `outgoing` describes the frame that is on its way
  std::size_t bytes = 0;
};

struct unexpected;

struct receive : core::completion, match::posted_receive, destination_owner {
  enum class phase : std::uint8_t {
    idle,
    posted,    // no message yet
    arriving,  // an eager frame is arriving into the buffer
    claiming,  // an eager frame is still arriving into the unexpected message that this receive has taken
    cts_sent,  // the sender was told to send, or the link fetches; data frames land in the buffer
    done
  };
  receive() noexcept : destination_owner(kind::receive) {}

  phase at = phase::idle;
  bool lost = false;  // its message, for want of memory: whoever owns it is told so, or the link ends
  int peer = -1;      // the sender, once matched
  std::uint64_t transfer_id = 0;  // from phase::cts_sent on
  std::byte* data = nullptr;
  std::size_t capacity = 0;
  std::size_t received = 0;
  unexpected* claimed = nullptr;
  fingerprint expected{};
  // Where it is told how much of a long message has come; null: nowhere.
  flight::recorder* recorder = nullptr;
  flight::handle record;
};

struct probe_tag;

// Waits for a message and leaves it where it is.
struct probe : core::completion, base::list_hook<probe_tag> {
  match::envelope wanted{};
};

struct rts_tag;

// A message, or the rts frame of one, that has no receive: it came before its receive, or its receive has
// given it up. `head.kind`: eager; rts; or data, of an announced message that its sender was told to
// send to a receive that has ended since. What is not complete yet arrives into `data`.
struct unexpected : match::unexpected_message, destination_owner, base::list_hook<rts_tag> {
  unexpected() noexcept : destination_owner(kind::unexpected) {}

  transport::frame head;
  int peer = -1;
  bool complete = false;          // all payload is here, or (rts) none will come unasked
  std::uint64_t transfer_id = 0;  // data, until it is complete
  std::size_t received = 0;       // likewise
  receive* claimed_by = nullptr;  // eager: taken while still arriving
  std::byte* data = nullptr;
  std::size_t capacity = 0;  // of `data`, kept when the node is reused
};

}  // namespace tutti::p2p
