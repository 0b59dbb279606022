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
#include "p2p/closed_contexts.hpp"
#include "p2p/control_messages.hpp"
#include "p2p/control_pool.hpp"
#include "p2p/transfer_id_table.hpp"
#include "p2p/transfer_states.hpp"
#include "transport/link.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti::p2p {

// How a rank waits for another.
enum class waits : std::uint8_t {
  not_at_all,
  for_any,  // one of several that may satisfy the wait
  for_it    // this one only
};

// The cost of a message in the window of eager ones, besides its bytes: its node.
inline constexpr std::uint64_t node_cost = 256;
constexpr std::uint64_t cost_of(std::uint64_t bytes) noexcept { return bytes + node_cost; }

// Limit of what one peer may have sent eagerly without credit; bounds the memory of unexpected messages.
inline constexpr std::uint64_t eager_window = 2 * 1024 * 1024;

// A communicator as the endpoint sees it.
class context_owner {
 public:
  // Called when a frame of collective `sequence` comes from `peer`. Returns false if it belongs to another
  // collective than this rank's: it is dropped.
  virtual bool admit(int peer, std::uint32_t sequence, const fingerprint& theirs) noexcept = 0;
  // Describes both calls, when a message of collective `sequence` meets a receive of a different collective.
  virtual std::string mismatch_text(int peer, std::uint32_t sequence, const fingerprint& mine,
                                    const fingerprint& theirs) const = 0;
  // `peer` has reported that this communicator failed there.
  virtual void failed_remotely(int peer, const failure_notice& told) noexcept = 0;
  // The link to `peer` has closed.
  virtual void peer_closed(int peer, errc why, const std::string& text) noexcept = 0;
  // `peer` has closed this communicator: its last handle there is gone.
  virtual void closed_remotely(int /*peer*/) noexcept {}
  // The text of operations that end with errc::peer_left because of that.
  virtual std::string closed_text(int /*peer*/) const { return {}; }
  // `peer` asks how far this rank is with collective `sequence`.
  virtual collective_progress where(std::uint32_t) const noexcept { return {}; }
  // `peer` has answered endpoint::ask.
  virtual void told(int, std::uint32_t, const collective_progress&) noexcept {}
  // Whether messages of this context may come from `peer`.
  virtual bool has_member(int) const noexcept { return true; }

 protected:
  ~context_owner() = default;
};

// Finds the link to a rank of the world.
class router {
 public:
  virtual transport::link& link_to(int peer) = 0;
  virtual std::string describe(int peer) const = 0;  // "rank 2 (host b, pid 77)"
  // Whether `peer`, which cannot be reached, is known to have left in order.
  virtual bool has_left(int /*peer*/) const noexcept { return false; }
  // An agree frame has come.
  virtual void agree(int /*peer*/, std::uint32_t /*context*/, std::uint32_t /*round*/,
                     std::span<const std::byte> /*payload*/) noexcept {}
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
  // Tells `owner` of a failure in a peer that had the context before this rank.
  void tell_early_failure(std::uint32_t context, context_owner& owner) noexcept;

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
  // Tells `peer` that the communicator has failed on this rank; best effort.
  void send_failure(std::uint32_t context, int peer, const failure_notice& what) noexcept;
  // Keeps a failure for peers that learn later that the communicator of `context` is closed. The latest 96
  // are kept, including those for tell_early_failure().
  void keep_failure(std::uint32_t context, const failure_notice& what) noexcept;
  // Tells `peer` that this rank has closed the context or is about to, after the failure that was kept; best
  // effort.
  void announce_closing(std::uint32_t context, int peer) noexcept;
  // Records that `peer` has closed the context. Operations there that wait for a message from it or to it,
  // now or later, end with errc::peer_left.
  void closed_by(std::uint32_t context, int peer) noexcept;
  // Sends an agree frame; best effort.
  void agree(std::uint32_t context, int peer, std::uint32_t round, std::vector<std::byte> payload) noexcept;
  // Breaks the connection to `peer` for lack of memory for `what`: without it messages would be incomplete or
  // out of order.
  void lose(int peer, const char* what) noexcept;
  // Makes sure that the end of `peer` would be noticed: connects to it if there is no connection yet.
  void get_in_touch(int peer) noexcept;
  // Makes sure that `peer` will hear that this rank leaves: connects if nothing has come from it yet.
  void meet(int peer) noexcept;
  // Calls f(rank of the world) for every other rank from which a receive or probe of `context` waits for a
  // message; some come several times.
  template <class F>
  void for_each_awaited(std::uint32_t context, F f) const {
    const auto name = [&](const match::envelope& wanted) {
      if (wanted.context == context && wanted.source >= 0 && wanted.source != rank_) f(wanted.source);
    };
    matcher_.visit_posted(context, [&](const match::posted_receive& r) { name(r.wanted); });
    for (const probe* p = probes_.front(); p != nullptr; p = probes_.after(*p)) name(p->wanted);
  }

  // Sends a notice to every rank from which collective `sequence` waits for a message. Ranks that wait for
  // each other in different collectives would otherwise never exchange a frame that shows it.
  void give_notices(std::uint32_t context, std::uint32_t sequence, const fingerprint& part_of) noexcept;

  // Sends a notice to one of them.
  void give_notice(std::uint32_t context, int peer, std::uint32_t sequence,
                   const fingerprint& part_of) noexcept;

  // Asks `peer` how far it is with collective `sequence`; context_owner::told gets the answer.
  void ask(std::uint32_t context, int peer, std::uint32_t sequence) noexcept;
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

  // Whether the context was open on this rank and no longer is: its messages have no receiver. (Messages of
  // contexts that are not yet open are kept.)
  bool was_closed(std::uint32_t context) const noexcept {
    return !contexts_.contains(context) && closed_.contains(context);
  }

  // Raises `by_peer`, by rank of the world, to how this rank waits for it. Frames that the links have not yet
  // sent are not considered.
  void mark_waited_for(std::vector<waits>& by_peer) noexcept;

  bool peer_gone(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].why != errc::success;
  }
  bool peer_failed(int peer) const noexcept {
    return peer_gone(peer) && peers_[static_cast<std::size_t>(peer)].why != errc::peer_left;
  }
  // The reason why the link to `peer` has ended; requires that it has.
  const std::string& text_of(int peer) const noexcept { return peers_[static_cast<std::size_t>(peer)].text; }
  // Whether anything was sent to `peer` or came from it.
  bool in_touch(int peer) const noexcept { return peers_[static_cast<std::size_t>(peer)].in_touch; }
  const endpoint_counters& counters() const noexcept { return counters_; }
  const peer_counters& counters_with(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].counters;
  }
  endpoint_usage usage() const noexcept;
  core::engine& engine() noexcept { return engine_; }
  int rank() const noexcept { return rank_; }

  // transport::inbound
  transport::destination_buffer begin(int peer, const transport::frame& head) noexcept override;
  void end(int peer, const transport::frame& head,
           const transport::destination_buffer& where) noexcept override;
  void deliver(int peer, const transport::frame& head, const std::byte* payload) noexcept override;
  void closed(int peer, errc why, std::string text) noexcept override;

 private:
  struct peer_state {
    errc why = errc::success;         // of the link's end
    transport::link* link = nullptr;  // until its end, once anything was sent
    bool in_touch = false;
    bool heard = false;  // a frame has come from it
    bool lost = false;   // nothing more is accepted from it; its link is about to close
    peer_counters counters;
    std::string text;
    std::uint64_t eager_out = 0;  // cost of eager messages that this rank sent and the peer has not credited
    // cost of messages taken here since the last credit; credit is sent for half a window at a time
    std::uint64_t owed = 0;
    // destination of the eager frame whose header has come, but not all of its payload
    destination_owner* arriving = nullptr;
  };
  peer_state& state_of(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }
  struct open {
    context_owner* owner = nullptr;
    int untold = -1;  // a dead member that no wildcard receive has reported yet
    std::vector<int> closed_by;
  };
  bool is_closed_by(std::uint32_t context, int peer) const noexcept {
    const auto entry = closings_ == 0 ? contexts_.end() : contexts_.find(context);
    return entry != contexts_.end() && is_closed_by(entry->second, peer);
  }
  static bool is_closed_by(const open& o, int peer) noexcept {
    return std::find(o.closed_by.begin(), o.closed_by.end(), peer) != o.closed_by.end();
  }
  // Fails `a` with the reason why `peer` is gone in this context.
  void set_gone(core::completion& a, std::uint32_t context, int peer) noexcept;
  // Returns a member that has gone if a wildcard receive would wait for nobody: all other members have gone,
  // there were some, and this rank does not send to itself. Otherwise -1.
  int nobody_left(const open& o) const noexcept;
  // The same for a receive to come: -1 if a message may come from `source`. With any_source: a failed member
  // that no wildcard receive has reported yet.
  int gone_source(std::uint32_t context, int source) noexcept {
    if (source >= 0) return peer_gone(source) || is_closed_by(context, source) ? source : -1;
    return gone_ == 0 && closings_ == 0 ? -1 : gone_of_any(context);
  }
  int gone_of_any(std::uint32_t context) noexcept;
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
  void end_fail(int peer, const transport::frame& head, const transport::destination_buffer& where) noexcept;
  void end_agree(int peer, const transport::frame& head, const transport::destination_buffer& where) noexcept;
  bool admitted(int peer, const transport::frame& head) noexcept {
    return head.fingerprint == fingerprint{} || admitted_to_collective(peer, head);
  }
  bool admitted_to_collective(int peer, const transport::frame& head) noexcept;

  bool take_unexpected(receive& r, unexpected& u) noexcept;
  void clear_to_send(receive& r, int peer, const transport::frame& rts) noexcept;
  void note_message(receive& r, int peer, const transport::frame& head) noexcept;
  void note_misfit(receive& r, int peer, const transport::frame& head) noexcept;

  // An eager message of the peer needs no memory here any more.
  void give_credit(int peer, const transport::frame& head) noexcept;
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
  void end_ask(int peer, const transport::frame& head) noexcept;
  void end_tell(int peer, const transport::frame& head) noexcept;
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
  void post_control(int peer, const transport::frame& head, std::vector<std::byte> payload = {}) noexcept;

  unexpected* new_unexpected(std::size_t bytes);
  unexpected* memory_of(std::uint64_t bytes) noexcept;
  void recycle(unexpected& u) noexcept;
  void retire(unexpected& u) noexcept;  // the same for an eager message

  static void sent(transport::outgoing& o, bool ok) noexcept;

  core::engine& engine_;
  router& routes_;
  const int rank_;
  std::vector<std::unique_ptr<unexpected>>
      unexpected_nodes_;  // before the queues that link them: freed after them
  match::matcher matcher_;
  transfer_id_table transfer_ids_;
  std::unordered_map<std::uint32_t, open> contexts_;
  std::vector<context_owner*> to_tell_;  // has room for all of them
  std::vector<peer_state> peers_;
  std::size_t gone_ = 0;      // number of peers whose link has ended
  std::size_t closings_ = 0;  // number of pairs of an open context and a peer that has closed it
  // Sends that a link has handed back, until it reports the reason.
  base::intrusive_list<transport::outgoing, transport::outgoing_tag> returned_;
  base::intrusive_list<unexpected, rts_tag> unmatched_rts_;
  base::intrusive_list<probe, probe_tag> probes_;
  std::vector<unexpected*> free_unexpected_;
  control_pool controls_;
  closed_contexts closed_;
  static constexpr std::size_t most_kept_failures = 96;
  void send_kept_failure(std::uint32_t context, int peer) noexcept;
  // A failure of a context that is not open here: not yet, or no longer.
  struct kept_failure {
    std::uint32_t context;
    int peer;  // this rank itself, for a context that it has closed
    told_failure what;
  };
  void keep_failure(kept_failure f) noexcept;
  std::vector<kept_failure> kept_failures_;  // the oldest first
  endpoint_counters counters_;
};

}  // namespace tutti::p2p
