// SPDX-License-Identifier: Apache-2.0
// endpoint: point to point between the ranks of one world: the protocols that turn frames into messages.
//
//   eager       a frame with the whole message. The receiver keeps unmatched ones in memory of bounded size:
//               a sender without credit at the receiver uses rendezvous
//   rendezvous  rts -> (match) -> cts -> data...; the data go directly into the receive buffer
//   fetched     rts -> (match) -> the receiver's link reads the data itself -> fin
// refuse, cancel and fail end these early. Ranks here are ranks of the world; contexts separate
// communicators.
#pragma once

#include "core/engine.hpp"
#include "match/matcher.hpp"
#include "p2p/contexts.hpp"
#include "p2p/control_plane.hpp"
#include "p2p/peers.hpp"
#include "p2p/transfer_id_table.hpp"
#include "p2p/transfer_states.hpp"
#include "transport/link.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::p2p {

// How a rank waits for another.
enum class waits : std::uint8_t {
  not_at_all,
  for_any,  // one of several that may satisfy the wait
  for_it    // this one only
};

struct endpoint_counters {
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t eager = 0;
  std::uint64_t rendezvous = 0;
  std::uint64_t unexpected = 0;
  std::uint64_t fetched = 0;  // receives whose message the link read from the sender's memory
  std::uint64_t corrupt_frames = 0;
  std::uint64_t given_back = 0;  // messages whose receive ended early, and which were kept for another
};

// Current use of resources, for reports and tests.
struct endpoint_usage {
  std::size_t posted = 0;        // receives without a message
  std::size_t unexpected = 0;    // messages without a receive, or on their way to one
  std::size_t transfer_ids = 0;  // messages in a rendezvous
  std::size_t controls = 0;      // frames without an owner that have not left
};

class endpoint final : public transport::inbound {
 public:
  endpoint(core::engine& engine, router& routes, int rank, int size,
           transfer_id_table transfer_ids = transfer_id_table());
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;
  ~endpoint();

  void open_context(std::uint32_t context, context_owner& owner) noexcept;
  void close_context(std::uint32_t context) noexcept;
  // Treats the context as closed: this rank will not open it, although others count on it.
  void renounce_context(std::uint32_t context) noexcept;
  // Starts a transfer. Returns true if it is already complete: read failure() and the result; no completion
  // follows. The transfer and the buffer must stay valid until completion, or until release().
  bool start(send& s, std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes,
             const fingerprint& part_of) noexcept;
  // Sends a message that its link takes whole at once, without a transfer. Returns false if nothing was done:
  // start() a send.
  bool send_now(std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes) noexcept;
  bool start(receive& r, std::uint32_t context, int source, int tag, void* data, std::size_t capacity,
             const fingerprint& part_of) noexcept;
  bool start(probe& p, std::uint32_t context, int source, int tag) noexcept;
  // Ends the transfer without a completion. On return the endpoint holds no pointer to it or its buffer.
  // Harmless when done. A message that a point to point receive has matched but not delivered is queued again
  // as if this receive had never matched it. That includes a complete one.
  void release(send& s) noexcept;
  void release(receive& r) noexcept;
  void release(probe& p) noexcept;
  // Ends the transfer with this failure, delivered as its completion; harmless when done. With
  // errc::cancelled or timed_out it reports what really happened. A receive leaves its message to others, but
  // ends with errc::truncated if it had begun to cut it off. It ends with errc::resources if there is no
  // memory to keep the message in. A send whose message arrives all the same succeeds. With any other code
  // the message is lost.
  void fail(send& s, errc code, const std::string& text) noexcept;
  void fail(receive& r, errc code, const std::string& text) noexcept;
  void fail(probe& p, errc code, const std::string& text) noexcept;
  // Ends every receive posted for `context`.
  void fail_posted(std::uint32_t context, errc code, const std::string& text) noexcept;
  // Records that `peer` has closed the context. Operations there that wait for a message from it or to it,
  // now or later, end with errc::peer_left.
  void closed_by(std::uint32_t context, int peer) noexcept;
  // Calls f(rank of the world) for every other rank from which a receive or probe of `context` waits for a
  // message; some come several times.
  template <class F>
  void for_each_awaited(std::uint32_t context, F f) const {
    const auto name = [&](const match::envelope& wanted) {
      if (wanted.context == context && wanted.source >= 0 && wanted.source != rank()) f(wanted.source);
    };
    matcher_.visit_posted(context, [&](const match::posted_receive& r) { name(r.wanted); });
    for (const probe* p = probes_.front(); p != nullptr; p = probes_.after(*p)) name(p->wanted);
  }

  // Sends a notice to every rank from which collective `sequence` waits for a message. Ranks that wait for
  // each other in different collectives would otherwise never exchange a frame that shows it.
  void give_notices(std::uint32_t context, std::uint32_t sequence, const fingerprint& part_of) noexcept;

  // Returns a rank of the world from which a receive of collective `sequence` is posted, or -1.
  int waits_for(std::uint32_t context, std::uint32_t sequence) noexcept;
  // Calls f(source, tag) for every receive posted for `context`; returns their number.
  template <class F>
  std::size_t posted(std::uint32_t context, F f) const {
    std::size_t n = 0;
    matcher_.visit_posted(context, [&](const match::posted_receive& r) {
      f(r.wanted.source, r.wanted.tag);
      ++n;
    });
    return n;
  }
  // Finds the oldest message from `source` that waits for a receive, whatever its tag. Returns false if there
  // is none.
  bool waiting_message(std::uint32_t context, int source, status& found) noexcept;

  // Raises `by_peer`, by rank of the world, to how this rank waits for it. Frames that the links have not yet
  // sent are not considered.
  void mark_waited_for(std::vector<waits>& by_peer) noexcept;

  control_plane& control() noexcept { return control_; }
  p2p::peers& peers() noexcept { return peers_; }
  const p2p::contexts& contexts() const noexcept { return contexts_; }
  const endpoint_counters& counters() const noexcept { return counters_; }
  endpoint_usage usage() const noexcept;
  core::engine& engine() noexcept { return engine_; }
  int rank() const noexcept { return peers_.rank(); }

  // transport::inbound
  transport::destination_buffer begin(int peer, const transport::frame& head) noexcept override;
  void end(int peer, const transport::frame& head,
           const transport::destination_buffer& where) noexcept override;
  void deliver(int peer, const transport::frame& head, const std::byte* payload) noexcept override;
  void closed(int peer, errc why, std::string text) noexcept override;

 private:
  // Ends the receives that name `source`; for any_source, those from any. Returns their number.
  std::size_t fail_posted_from(std::uint32_t context, int source, const departure& why) noexcept;
  void drop_arriving(int peer) noexcept;
  void drop_unexpected(std::uint32_t context) noexcept;
  transport::outgoing* returned_of(int peer) noexcept;

  // receive_cancellation.cpp
  bool take_back(send& s) noexcept;
  void end_early(receive& r, errc code, const std::string& text, bool keep) noexcept;
  unexpected* detach(receive& r, bool keep, bool& lost) noexcept;
  unexpected* memory_for(const receive& r, transport::frame_kind kind, std::size_t bytes) noexcept;
  unexpected* keep_whole(const receive& r) noexcept;
  void keep_arriving(receive& r, unexpected& u) noexcept;
  void take_over(receive& r, unexpected& u) noexcept;
  void stop_arriving(unexpected& u) noexcept;
  void offer(unexpected& u) noexcept;
  void discard(unexpected& u) noexcept;
  void wait_again(receive& r) noexcept;

  transport::destination_buffer begin_eager(int peer, const transport::frame& head) noexcept;
  transport::destination_buffer keep_early(int peer, const transport::frame& head) noexcept;
  transport::destination_buffer begin_data(int peer, const transport::frame& head) noexcept;
  void end_eager(int peer, const transport::frame& head, const transport::destination_buffer& where) noexcept;
  void end_rts(int peer, const transport::frame& head) noexcept;
  void end_cts(int peer, const transport::frame& head) noexcept;
  void end_data(const transport::frame& head, const transport::destination_buffer& where) noexcept;
  void end_cancel(int peer, const transport::frame& head) noexcept;
  void end_control(int peer, const transport::frame& head,
                   const transport::destination_buffer& where) noexcept;

  bool take_unexpected(receive& r, unexpected& u) noexcept;
  void clear_to_send(receive& r, int peer, const transport::frame& rts) noexcept;
  void note_message(receive& r, int peer, const transport::frame& head) noexcept;
  void note_misfit(receive& r, int peer, const transport::frame& head) noexcept;

  // Completes the probes that match an unexpected message that was kept.
  void answer_probes(const unexpected& u) noexcept;
  // Ends the probes selected by `ends`.
  template <class Ends>
  void end_probes(const Ends& ends, errc code, const std::string& text) noexcept {
    for (probe* p = probes_.front(); p != nullptr;) {
      probe* const next = probes_.after(*p);
      if (ends(*p)) fail(*p, code, text);
      p = next;
    }
  }
  void end_answer(int peer, const transport::frame& head) noexcept;

  // Finishes a send or a receive.
  template <class Transfer>
  void finish(Transfer& t) noexcept {
    if (t.transfer_id != 0) transfer_ids_.erase(t.transfer_id);
    t.transfer_id = 0;
    t.at = Transfer::phase::done;
    stop_waiting(t);
    engine_.complete(t);
  }
  void stop_waiting(core::completion& a) noexcept {
    static_cast<base::list_hook<core::waiting_tag>&>(a).unlink();
    engine_.end_wait();
  }

  unexpected* new_unexpected(std::size_t bytes);
  unexpected* memory_of(std::uint64_t bytes) noexcept;
  void recycle(unexpected& u) noexcept;
  void retire(unexpected& u) noexcept;  // the same for an eager message

  static void sent(transport::outgoing& o, bool ok) noexcept;

  core::engine& engine_;
  router& routes_;
  p2p::peers peers_;
  p2p::contexts contexts_;
  control_plane control_;
  std::vector<std::unique_ptr<unexpected>>
      unexpected_nodes_;  // before the queues that link them: freed after them
  match::matcher matcher_;
  transfer_id_table transfer_ids_;
  // Sends that a link has handed back, until it reports the reason.
  base::intrusive_list<transport::outgoing, transport::outgoing_tag> returned_;
  base::intrusive_list<unexpected, rts_tag> unmatched_rts_;
  base::intrusive_list<probe, probe_tag> probes_;
  std::vector<unexpected*> free_unexpected_;
  endpoint_counters counters_;
};

}  // namespace tutti::p2p
