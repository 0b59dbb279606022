// SPDX-License-Identifier: Apache-2.0
// receives: the receiver's side of the protocols: matches messages to receives, and says where their payload
// goes. An eager message goes into the buffer of its receive, or is kept. For an rts frame with a receive, the
// link fetches the message, or a cts frame asks for it. Receives that end early are in
// receive_cancellation.cpp.
//
// Invariants: a receive that waits is posted in the matcher, is the destination of a frame that arrives, or is
// named in the ids. A receive that is done is none of these. A receive that ends early does not lose its message.
#pragma once

#include "match/matcher.hpp"
#include "p2p/contexts.hpp"
#include "p2p/control_plane.hpp"
#include "p2p/peers.hpp"
#include "p2p/transfer_states.hpp"
#include "p2p/unexpected_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::p2p {

struct receive_counters {
  std::uint64_t receives = 0;
  std::uint64_t unexpected = 0;
  std::uint64_t fetched = 0;     // receives whose message the link read from the sender's memory
  std::uint64_t given_back = 0;  // messages whose receive ended early, and which were kept for another
};

class receives {
 public:
  receives(core::progress_engine& engine, peers& all, contexts& open, control_plane& control,
           match::matcher& matching, receive_ids& ids, unexpected_queue& early) noexcept
      : engine_(engine),
        peers_(all),
        contexts_(open),
        control_(control),
        matcher_(matching),
        ids_(ids),
        unexpected_(early) {}

  // Contracts: class endpoint.
  [[gnu::always_inline]] bool start(receive& r, std::uint32_t context, int source, int tag, void* data,
                                    std::size_t capacity, const fingerprint& part_of) noexcept {
    ++counters_.receives;
    r.data = static_cast<std::byte*>(data);
    r.capacity = capacity;
    r.expected = part_of;
    r.received = 0;
    r.lost = false;
    r.wanted = match::envelope{context, source, tag};
    if (match::unexpected_message* m = matcher_.post(r)) return start_with(r, static_cast<unexpected&>(*m));
    if (const int gone = contexts_.gone_source(context, source); gone >= 0) [[unlikely]] {
      fail_without_sender(r, gone);
      return true;
    }
    r.at = receive::phase::posted;
    engine_.begin_wait();
    return false;
  }

  bool start(receive& r, unexpected& held, void* data, std::size_t capacity) noexcept;
  void put_back(unexpected& held) noexcept;

  void release(receive& r) noexcept;
  void fail(receive& r, errc code, const std::string& text) noexcept;

  // The frames of messages. Contracts: transport::inbound.
  destination_buffer begin_eager(int peer, const frame& head) noexcept;
  destination_buffer begin_data(int peer, const frame& head) noexcept;
  void end_eager(int peer, const frame& head, const destination_buffer& where) noexcept;
  void end_rts(int peer, const frame& head) noexcept;
  void end_data(int peer, const frame& head, const destination_buffer& where) noexcept;
  void deliver_eager(int peer, const frame& head, const std::byte* payload) noexcept;

  // The sender takes back a message whose rts has gone.
  void end_cancel(int peer, const frame& head) noexcept;
  // The link to `peer` has ended. Messages that had come whole can still be received; partial ones cannot.
  void peer_closed(int peer) noexcept;
  // Fails the posted receives that name `source`; with any_source, those from any. Returns whether there were
  // any.
  bool fail_posted(std::uint32_t context, int source, const departure& why) noexcept;

  // The old place of a receive's message is not written any more.
  void released(receive& r) noexcept;
  // Calls f(const receive&) for each that has ended, but whose buffer is still written.
  template <class F>
  void for_each_draining(F f) const {
    draining_.for_each([&f](const match::posted_receive& p) { f(static_cast<const receive&>(p)); });
  }

  const receive_counters& counters() const noexcept { return counters_; }

 private:
  bool start_with(receive& r, unexpected& u) noexcept;
  // Takes out a posted receive whose source has gone, and records why.
  void fail_without_sender(receive& r, int gone) noexcept;
  // Gives a message without a receive to `r`. Returns true if the receive is then complete.
  bool take(receive& r, unexpected& u) noexcept;
  // Ends a receive: it no longer waits. finish() also delivers its completion.
  void settle(receive& r) noexcept { p2p::settle(engine_, ids_, r); }
  void finish(receive& r) noexcept {
    settle(r);
    engine_.complete(r);
  }
  [[gnu::always_inline]] void note_message(receive& r, int peer, const frame& head) noexcept {
    r.peer = peer;
    r.result.source = peer;
    r.result.tag = head.tag;
    r.result.bytes = head.length;
    // All parts of a collective know their length.
    const bool fits = head.length == r.capacity || (head.length < r.capacity && r.expected == point_to_point);
    if (!fits || head.fingerprint != r.expected) [[unlikely]]
      note_misfit(r, peer, head);
  }
  void note_misfit(receive& r, int peer, const frame& head) noexcept;
  bool is_unwanted(int peer, const frame& head) noexcept;
  receive* match(int peer, const frame& head) noexcept;
  unexpected* keep_early(int peer, const frame& head) noexcept;
  // Makes `to` the owner of a message of `bytes` bytes that is arriving, and of what has come of it.
  redirect_result hand_over(destination_owner& from, destination_owner& to, std::uint64_t bytes) noexcept;
  void clear_to_send(receive& r, int peer, const frame& rts) noexcept;

  void end_early(receive& r, errc code, const std::string& text, bool keep) noexcept;
  // Detaches a receive: on return nothing refers to it or its buffer, unless it drains. Returns its message if it
  // has one that is to be kept; `lost` is set if there is no memory for it.
  unexpected* detach(receive& r, bool keep, bool& lost) noexcept;
  unexpected* detach_arriving(receive& r, bool keep, bool& lost) noexcept;
  // Memory for the message of `r`; nullptr: there is none.
  unexpected* memory_for(const receive& r, frame_kind kind, std::size_t bytes) noexcept;
  unexpected* keep_whole(const receive& r) noexcept;
  void offer(unexpected& u) noexcept;
  void drain_later(receive& r) noexcept;
  void end_taken_back(receive& r) noexcept;
  void wait_again(receive& r) noexcept;
  void drop_arriving(int peer) noexcept;

  core::progress_engine& engine_;
  peers& peers_;
  contexts& contexts_;
  control_plane& control_;
  match::matcher& matcher_;
  receive_ids& ids_;
  unexpected_queue& unexpected_;
  base::intrusive_list<match::posted_receive, match::posted_tag> draining_;
  receive_counters counters_;
};

}  // namespace tutti::p2p
