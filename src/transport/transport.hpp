// SPDX-License-Identifier: Apache-2.0
// transport: one way of reaching peers.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/limits.hpp"
#include "base/shared_memory.hpp"
#include "base/sparse_array.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/address.hpp"
#include "core/loop.hpp"
#include "core/progress_engine.hpp"
#include "core/running_task.hpp"
#include "core/world_info.hpp"
#include "transport/link.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tutti/task.hpp>
#include <utility>
#include <vector>

namespace tutti::transport {

// Which peers a listener is for.
struct listen_wish {
  bool authenticated;  // connections must prove that they know a secret
  // The host where the ranks meet; "": any other host; null: this host is enough.
  std::optional<std::string> towards = std::nullopt;
  bootstrap::endpoints addresses = {};  // of that host
};

// The ranks of this host whose memory this rank reads in place, without messages.
class neighbours {
 public:
  // Lets `peer` map the region of `place`; its descriptor is sent once, before any later message. Returns
  // false without a connection, or without room for the descriptor.
  virtual bool show(int peer, const base::shared_place& place) noexcept = 0;
  // Returns `bytes` bytes from `offset` of a region that `peer` has shown. Returns null if the region is
  // unknown, cannot be mapped or is shorter. It stays mapped as long as the transport lives, whatever happens
  // to the peer.
  virtual const std::byte* find_memory(int peer, std::uint64_t region, std::uint64_t offset,
                                       std::uint64_t bytes) noexcept = 0;
  // The same, to write there: mapped by the first call. It lets this rank write to all of the region.
  virtual std::byte* find_writable(int peer, std::uint64_t region, std::uint64_t offset,
                                   std::uint64_t bytes) noexcept = 0;
  // A word that is not 0 while the peer sleeps or is about to. After writing what the peer waits for, fence,
  // read this word, and notify the peer if it is set. Null without a connection. It stays valid as long as
  // the transport. Sources that are added to the peer's engine after the transport are armed after the word.
  virtual const std::atomic<std::uint32_t>* sleeps(int peer) noexcept = 0;
  virtual void notify(int peer) noexcept = 0;

 protected:
  ~neighbours() = default;
};

using limits::bytes_per_turn;

struct active_tag;
class peer_link;

// Owns its links. The loop polls it, and it keeps the loop alive while its world is open.
class transport : public core::source {
 public:
  // As in TUTTI_TRANSPORTS.
  virtual const char* name() const noexcept = 0;
  // Opens the listener, if there is one, and enters its address into this rank's endpoint record, before the
  // world is known. Throws tutti::error.
  virtual void listen(core::endpoint_record& /*mine*/, const listen_wish& /*wish*/) {}
  // Accepts connections from now on: the world is known. `info` and `up` outlive the transport.
  virtual void open(const core::world_info& info, inbound& up) = 0;
  virtual bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept {
    return mine.rank != peer.rank;
  }
  // The link to a peer, made on the first call; the same for both directions. It lives as long as the
  // transport.
  link& link_to(int peer);
  // That link if either side has made it; otherwise null.
  link* made_link(int peer) noexcept;
  // Not null if the peers that it reaches can read each other's memory.
  virtual neighbours* memory() noexcept { return nullptr; }
  // Whether frames wait to leave, for room or for their connection.
  virtual bool has_queue() const noexcept;
  // Ends the world normally: tells every connected peer, sends queued frames, and waits until the peers have
  // the bytes, or until the deadline. Afterwards nothing of this transport is in the loop. From the start of
  // this nothing is delivered upward; frames to others that could not leave in time are handed back.
  virtual task<> leave(core::time_point deadline);
  // Ends the world now: cuts every connection, so that peers see it at once. Calls nothing upward any more.
  virtual void cut() noexcept;

  bool poll() noexcept override { return work_active(); }
  bool arm() noexcept override { return !active_.empty(); }

  // For its links.
  const core::world_info& info() const noexcept { return *info_; }
  std::string describe(int peer) const { return info_->describe(peer); }
  inbound& up() noexcept { return *up_; }
  core::backend& backend() { return loop_.backend(); }
  void wake() noexcept { loop_.wake(); }
  bool leaving() const noexcept { return leaving_; }
  // `l` has work that no event will report: it works in the next round.
  void activate(peer_link& l) noexcept;

 protected:
  explicit transport(core::loop& loop) noexcept;

  // Joins the loop.
  void start(const core::world_info& info, inbound& up);
  // Cuts and destroys the links: called by the destructors of derived classes.
  void end() noexcept;
  peer_link& at(int peer);
  // Lets the active links work; those that are activated meanwhile wait for the next round.
  bool work_active() noexcept;
  void leave_loop() noexcept {
    if (!std::exchange(attached_, false)) return;
    loop_.engine().remove(*this);
    loop_.release();
  }

  virtual std::unique_ptr<peer_link> make_link(int peer) = 0;
  // Whether every peer has what was sent to it, as it has what lies in its memory. Asked while leaving.
  virtual bool has_left() noexcept { return !has_queue(); }

  core::loop& loop_;
  const core::world_info* info_ = nullptr;
  inbound* up_ = nullptr;
  base::intrusive_list<peer_link, active_tag> active_;
  bool attached_ = false;  // in the loop
  bool leaving_ = false;
  std::vector<peer_link*> live_;  // those that were made
  bool left_ = false;             // leave() came to its end

 private:
  base::sparse_array<std::unique_ptr<peer_link>> links_;  // by peer; null until needed
};

// A link to one peer, from its first frame to its end.
class peer_link : public link, public base::list_hook<active_tag> {
 public:
  enum class phase {
    idle,
    connecting,  // an attempt of this side is in progress
    awaiting,    // the peer prefers its attempt to this side's
    accepting,   // the peer's attempt is being answered
    connected,
    failing,  // at its end, which the loop is about to report
    closed
  };

  int peer() const noexcept { return peer_; }
  phase at() const noexcept { return at_; }
  bool closed() const noexcept override { return at_ == phase::closed; }
  bool has_queue() const noexcept override { return !messages_.empty() || !data_.empty(); }
  cancel_result cancel(outgoing& f) noexcept override {
    f.unlink();
    return cancel_result::gone;
  }
  // Longer messages wait for their receive, which saves the memory of an unexpected copy, and the copy.
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override { return bytes <= 16 * 1024; }
  // Ends the link. The loop reports that, once.
  void fail(errc why, std::string text) noexcept {
    if (at_ == phase::failing || at_ == phase::closed) return;
    at_ = phase::failing;
    end_reason_ = why;
    end_text_ = std::move(text);
    through_.activate(*this);
  }
  void give_up(errc why, std::string text) noexcept override {
    if (at_ == phase::connecting || at_ == phase::awaiting) attempt_.stop();
    fail(why, std::move(text));
  }
  // Moves frames and reports the end. Returns whether anything happened. Called from the loop.
  bool work() noexcept {
    const bool any = at_ == phase::connected && move();
    if (at_ == phase::closed) return hand_back() || any;  // late frames
    if (at_ != phase::failing) return any;
    close(end_reason_, std::move(end_text_));
    return true;
  }
  // Ends the link now, unless it has ended, and reports that while the world is open. Called from the loop.
  void close(errc why, std::string text) noexcept {
    if (closed()) return;
    drop();
    if (!through_.leaving()) through_.up().closed(peer_, why, std::move(text));
  }
  // Ends the link without a report, and hands queued frames back.
  void drop() noexcept {
    disconnect(false);
    declined_.reset();
    at_ = phase::closed;
    unlink();
    hand_back();
  }
  // The same at once, for the peer, too. Queued frames are forgotten.
  void cut() noexcept {
    disconnect(true);
    list forgotten;
    clear_queues(forgotten);
    drop();
  }
  // The world ends: sends the last frame of this side, when the queues are empty.
  virtual void leave() noexcept {}

  // For the transport that connects it.
  // Enters one of the phases before `connected`.
  void enter(phase p) noexcept { at_ = p; }
  // Keeps a connection of the peer open that was declined in favour of this side's attempt, so that the peer
  // sees when this side ends.
  void keep_declined(base::unique_fd connection) noexcept {
    if (at_ == phase::connecting) declined_ = std::move(connection);
  }

 protected:
  using list = base::intrusive_list<outgoing, outgoing_tag>;

  peer_link(transport& through, int peer, phase first) noexcept : through_(through), peer_(peer), at_(first) {
    farewell_.head.kind = frame_kind::leave;
  }
  // Reads what has come and sends what waits, a bounded amount. Returns whether anything happened. Requires
  // phase::connected.
  virtual bool move() noexcept = 0;
  // Closes the connection, if there is one. With `abort` the peer sees that at once.
  virtual void disconnect(bool abort) noexcept = 0;
  // Empties the queues into `rest`.
  virtual void clear_queues(list& rest) noexcept {
    rest.splice_back(messages_);
    rest.splice_back(data_);
  }

  transport& through_;
  const int peer_;
  phase at_;
  outgoing farewell_;           // the last frame of this side
  list messages_;               // that wait to leave, in order
  list data_;                   // that leave slice by slice, beside them
  core::running_task attempt_;  // to connect
  base::unique_fd declined_;

 private:
  friend class connecting_transport;

  bool hand_back() noexcept {
    list rest;
    clear_queues(rest);
    const bool any = !rest.empty();
    while (outgoing* const f = rest.pop_front()) f->done(*f, false);
    return any;
  }

  errc end_reason_ = errc::success;
  std::string end_text_;
};

inline transport::transport(core::loop& loop) noexcept : loop_(loop) {}

inline void transport::activate(peer_link& l) noexcept {
  if (!l.linked()) active_.push_back(l);
  loop_.wake();
}

inline bool transport::work_active() noexcept {
  peer_link* const first = active_.pop_front();
  if (first == nullptr) return false;
  if (active_.empty()) return first->work();
  base::intrusive_list<peer_link, active_tag> now;
  now.splice_back(active_);
  bool any = first->work();
  while (peer_link* const l = now.pop_front()) any |= l->work();
  return any;
}

// A rank's messages to itself.
std::unique_ptr<transport> make_self_transport(core::loop& loop);

}  // namespace tutti::transport
