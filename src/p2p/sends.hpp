// SPDX-License-Identifier: Apache-2.0
// sends: the sender's side of the protocols. A short message leaves with its header (eager) while the peer's
// credit lasts. Of any other message an rts frame leaves first. The receiver asks for the data (cts), has read
// them itself (fin), or does not want them (refuse).
//
// Invariant: ids_ names a send as long as it waits. Nothing here refers to it or its buffer afterwards.
#pragma once

#include "p2p/contexts.hpp"
#include "p2p/peers.hpp"
#include "p2p/transfer_states.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::p2p {

struct send_counters {
  std::uint64_t sends = 0;
  std::uint64_t eager = 0;
  std::uint64_t rendezvous = 0;
};

class sends {
 public:
  sends(core::progress_engine& engine, peers& all, contexts& open, std::uint32_t first_generation)
      : engine_(engine), peers_(all), contexts_(open), ids_(first_generation) {}

  // Contracts: class endpoint.
  bool start(send& s, std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes,
             const fingerprint& part_of) noexcept;
  bool send_now(std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes) noexcept;
  void release(send& s) noexcept;
  void fail(send& s, errc code, const std::string& text) noexcept;

  // The receiver asks for a message, by cts.
  void end_cts(int peer, const frame& head) noexcept;
  // The receiver does not want the message of an rts frame, or has read it.
  void end_answer(int peer, const frame& head) noexcept;
  // The link to `peer` has ended: fails the messages that wait for it.
  void peer_closed(int peer) noexcept;
  // `peer` has closed the context: fails the messages there that it has not asked for.
  void closed_by(std::uint32_t context, int peer, const departure& why) noexcept;

  // Calls f(const send&) for each message that waits.
  template <class F>
  void for_each(F f) {
    ids_.for_each(f);
  }
  std::size_t ids_in_use() const noexcept { return ids_.in_use(); }
  const send_counters& counters() const noexcept { return counters_; }

 private:
  static void sent(transport::outgoing& o, bool ok) noexcept;
  // Takes a send back. Returns `drains` if its link still reads the buffer. Otherwise nothing refers to the send or
  // its buffer; `arrived`: the message arrives all the same.
  cancel_result take_back(send& s) noexcept;
  // The link has no data of a send that is taken back any more. Returns whether the message arrives: `all` has left.
  bool end_streaming(send& s, bool all) noexcept;
  // Ends a send: it no longer waits. finish() also delivers its completion.
  void settle(send& s) noexcept { p2p::settle(engine_, ids_, s); }
  void finish(send& s) noexcept {
    settle(s);
    engine_.complete(s);
  }

  core::progress_engine& engine_;
  peers& peers_;
  contexts& contexts_;
  base::id_table<send> ids_;
  send_counters counters_;
};

}  // namespace tutti::p2p
