// SPDX-License-Identifier: Apache-2.0
// endpoint: point to point between the ranks of one world: the protocols that turn frames into messages.
//
//   eager       a frame with the whole message. The receiver keeps unmatched ones in memory of bounded size:
//               a sender without credit at the receiver uses rendezvous
//   rendezvous  rts -> (match) -> cts -> data...; the data go directly into the receive buffer
//   fetched     rts -> (match) -> the receiver's link reads the data itself -> fin
// refuse, cancel and fail end these early. Ranks here are ranks of the world; contexts separate
// communicators.
//
// The endpoint owns the parts, gives each frame to the part that it is for, and tells all parts when a peer or
// a context ends. ARCHITECTURE.md has a table of them; a part knows only the parts above it.
#pragma once

#include "core/progress_engine.hpp"
#include "match/matcher.hpp"
#include "p2p/contexts.hpp"
#include "p2p/control_plane.hpp"
#include "p2p/peers.hpp"
#include "p2p/receives.hpp"
#include "p2p/sends.hpp"
#include "p2p/transfer_states.hpp"
#include "p2p/unexpected_queue.hpp"
#include "transport/link.hpp"

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tutti/detail/flow.hpp>
#include <utility>
#include <vector>

namespace tutti::p2p {

// How a rank waits for another.
enum class waits : std::uint8_t {
  not_at_all,
  for_any,  // one of several that may satisfy the wait
  for_it    // this one only
};

struct endpoint_counters : send_counters, receive_counters {
  std::uint64_t corrupt_frames = 0;
};

// Current use of resources, for reports and tests.
struct endpoint_usage {
  std::size_t posted = 0;        // receives without a message
  std::size_t unexpected = 0;    // messages without a receive, or on their way to one
  std::size_t transfer_ids = 0;  // sends that wait, and messages that come by rendezvous
  std::size_t controls = 0;      // frames without an owner that have not left
};

class endpoint final : public transport::inbound {
 public:
  // The first transfer ids have this generation.
  endpoint(core::progress_engine& engine, router& routes, int rank, int size,
           std::uint32_t first_generation = 1);
  endpoint(const endpoint&) = delete;
  endpoint& operator=(const endpoint&) = delete;

  void open_context(std::uint32_t context, context_owner& owner) noexcept;
  void close_context(std::uint32_t context) noexcept;
  // Treats the context as closed: this rank will not open it, although others count on it.
  void renounce_context(std::uint32_t context) noexcept;
  // Records that `peer` has closed the context. Operations there that wait for a message from it or to it,
  // now or later, end with errc::peer_left.
  void closed_by(std::uint32_t context, int peer) noexcept;

  // Makes `taker` take the messages of the open context, also those that have come; nullptr: none does any more.
  void set_taker(std::uint32_t context, message_taker* taker) noexcept;

  // Starts a transfer. Returns true if it is already complete: read failure() and the result; no completion
  // follows. The transfer and the buffer must stay valid until completion, or until release().
  bool start(send& s, std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes,
             const fingerprint& part_of) noexcept {
    return sends_.start(s, context, peer, tag, data, bytes, part_of);
  }
  bool start(receive& r, std::uint32_t context, int source, int tag, void* data, std::size_t capacity,
             const fingerprint& part_of) noexcept {
    return receives_.start(r, context, source, tag, data, capacity, part_of);
  }
  bool start(probe& p, std::uint32_t context, int source, int tag) noexcept {
    return probes_.start(p, context, source, tag);
  }
  // Receives a message that a probe has taken, which is used up.
  bool start(receive& r, unexpected& held, void* data, std::size_t capacity) noexcept {
    return receives_.start(r, held, data, capacity);
  }
  // Queues such a message again in its place, or gives it to a receive that was posted meanwhile.
  void put_back(unexpected& held) noexcept { receives_.put_back(held); }
  // Sends a message that its link takes whole at once, without a transfer. Returns false if nothing was done:
  // start() a send.
  bool send_now(std::uint32_t context, int peer, int tag, const void* data, std::size_t bytes) noexcept {
    return sends_.send_now(context, peer, tag, data, bytes);
  }
  // Ends the transfer without a completion. On return the endpoint holds no pointer to it or its buffer.
  // Harmless when done. A message that a point to point receive has matched but not delivered is queued again
  // as if this receive had never matched it. That includes a complete one.
  void release(send& s) noexcept { sends_.release(s); }
  void release(receive& r) noexcept { receives_.release(r); }
  void release(probe& p) noexcept {
    probes_.release(p);
    if (p.taken != nullptr) put_back(*std::exchange(p.taken, nullptr));
  }
  // Ends the transfer with this failure, delivered as its completion; harmless when done. The completion follows
  // when nothing uses the buffer any more, which takes some milliseconds if hardware or the peer does. With
  // errc::cancelled or timed_out it reports what really happened. A receive leaves its message to others, but
  // ends with errc::truncated if it had begun to cut it off. It ends with errc::resources if there is no
  // memory to keep the message in. A send whose message arrives all the same succeeds. With any other code
  // the message is lost.
  void fail(send& s, errc code, const std::string& text) noexcept { sends_.fail(s, code, text); }
  void fail(receive& r, errc code, const std::string& text) noexcept { receives_.fail(r, code, text); }
  void fail(probe& p, errc code, const std::string& text) noexcept { probes_.fail(p, code, text); }

  // Calls f(rank of the world) for every other rank from which a receive or probe of `context` waits for a
  // message; some come several times.
  template <class F>
  void for_each_awaited(std::uint32_t context, F f) const {
    const auto name = [&](const match::envelope& wanted) {
      if (wanted.context == context && wanted.source >= 0 && wanted.source != rank()) f(wanted.source);
    };
    matcher_.visit_posted(context, [&](const match::posted_receive& r) { name(r.wanted); });
    probes_.for_each([&](const probe& p) { name(p.wanted); });
  }
  // Sends a notice to every rank from which collective `sequence` waits for a message. Ranks that wait for
  // each other in different collectives would otherwise never exchange a frame that shows it.
  void give_notices(std::uint32_t context, std::uint32_t sequence, const fingerprint& part_of) noexcept;
  // Returns a rank of the world from which a receive of collective `sequence` is posted, or -1.
  int waits_for(std::uint32_t context, std::uint32_t sequence) const noexcept;
  // Finds the oldest message from `source` that waits for a receive, whatever its tag. Returns false if there
  // is none.
  bool waiting_message(std::uint32_t context, int source, status& found) noexcept;
  // Raises `by_peer`, by rank of the world, to how this rank waits for it. Control frames that the links have
  // not yet sent are not considered.
  void mark_waited_for(std::vector<waits>& by_peer) noexcept;

  // Breaks the connection to `peer`, which has sent `what`: no rank of this version does.
  void reject(int peer, const char* what) noexcept { peers_.reject(peer, what); }
  // The same for lack of memory for `what`.
  void lose(int peer, const char* what) noexcept { peers_.lose(peer, what); }

  control_plane& control() noexcept { return control_; }
  const p2p::peers& peers() const noexcept { return peers_; }
  const p2p::contexts& contexts() const noexcept { return contexts_; }
  endpoint_counters counters() const noexcept;
  endpoint_usage usage() const noexcept;
  int rank() const noexcept { return peers_.rank(); }

  // transport::inbound
  destination_buffer begin(int peer, const frame& head) noexcept override;
  void end(int peer, const frame& head, const destination_buffer& where) noexcept override;
  void deliver(int peer, const frame& head, const std::byte* payload) noexcept override;
  void released(void* owner) noexcept override;
  void closed(int peer, errc why, std::string text) noexcept override;

 private:
  void end_control(int peer, const frame& head, const destination_buffer& where) noexcept;

  router& routes_;
  p2p::peers peers_;
  p2p::contexts contexts_;
  control_plane control_;
  sends sends_;
  receive_ids receive_ids_;
  unexpected_queue unexpected_;  // before the queues that link its messages: freed after them
  match::matcher matcher_;
  probes probes_;
  receives receives_;
};

// A send or a receive as an awaitable object for coroutines inside the library (collectives). It starts when
// made, is awaited once, and ends when destroyed. Neither copied nor moved, because the endpoint points to its
// state.
template <class Transfer>
class transfer {
 public:
  template <class... Arguments>
  explicit transfer(endpoint& through, Arguments... arguments) noexcept : through_(through) {
    transfer_.on_done = [](core::completion& a) noexcept {
      auto& self = *static_cast<transfer*>(a.user);
      self.finished_ = true;
      if (self.waiting_) detail::resume_bounded(self.waiting_);
    };
    transfer_.user = this;
    finished_ = through_.start(transfer_, arguments...);
  }
  transfer(const transfer&) = delete;
  transfer& operator=(const transfer&) = delete;
  ~transfer() { through_.release(transfer_); }

  bool await_ready() const noexcept { return finished_; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting_ = h; }
  status await_resume() {
    if (transfer_.failure() != errc::success) throw error(transfer_.failure(), transfer_.take_text());
    return transfer_.result;
  }

 private:
  endpoint& through_;
  Transfer transfer_;
  std::coroutine_handle<> waiting_;
  bool finished_ = false;
};

using sending = transfer<send>;
using receiving = transfer<receive>;

}  // namespace tutti::p2p
