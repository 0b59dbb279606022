// SPDX-License-Identifier: Apache-2.0
// Two endpoints on links in memory, which delay, split and break as the test requests.
#pragma once

#include "core/progress_engine.hpp"
#include "p2p/endpoint.hpp"
#include "support/local_world.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tutti::test::memory_links {

using transport::destination_buffer;
using transport::frame;
using transport::frame_kind;
using transport::outgoing;

inline constexpr std::uint32_t context = 6;
inline constexpr std::size_t longest_eager = 64;
inline constexpr std::size_t slice = 50;
inline constexpr p2p::fingerprint none{};

class frozen_time final : public core::platform {
 public:
  core::time_point now() noexcept override { return core::time_point{}; }
  std::uint64_t random() noexcept override { return 4; }
};

// One direction between two endpoints. Frames move when the test says so, in order (data may be passed),
// slice by slice.
class memory_link final : public transport::link {
 public:
  bool submit(outgoing& o) noexcept override {
    // Sometimes everything leaves at once, like with space in a ring.
    if (numbers != nullptr && !gone && queue_.empty() && o.head.kind != frame_kind::data &&
        numbers->one_in(3)) {
      send_whole(o);
      return true;
    }
    queue_.push_back(o);
    return false;
  }
  transport::cancel_result cancel(outgoing& o) noexcept override {
    const bool begun = streams && !gone && queue_.front() == &o;
    o.unlink();
    const bool arrived = o.shown != 0 && shown_.erase(o.shown) == 0;
    o.shown = 0;
    if (arrived) return transport::cancel_result::arrived;
    if (drains && lends(o)) {
      drained_.push_back(o);
      return transport::cancel_result::drains;
    }
    if (!begun) return transport::cancel_result::gone;
    // Like a stream that had begun to send: the rest of the frame is finished from a copy.
    if (o.head.kind != frame_kind::data) {
      send_whole(o);
      return transport::cancel_result::leaves;
    }
    send_slice(o);
    return o.progress >= o.head.length ? transport::cancel_result::leaves : transport::cancel_result::gone;
  }
  bool drain(outgoing& o) noexcept override {
    o.unlink();
    for (packet& p : pipe_)
      if (p.of == &o) p.copy();
    return o.progress >= o.head.length;
  }
  // Called on the receiver's link, which leads back to the sender.
  bool fetch(const frame& rts, std::uint64_t transfer_id) noexcept override {
    if (gone || back->shown_.count(rts.other_transfer_id) == 0) return false;
    if (numbers != nullptr && numbers->one_in(4)) return false;  // as if something were missing
    reads_.push_back({rts, transfer_id, 0});
    return true;
  }
  bool stop_fetching(std::uint64_t transfer_id, frame& rts) noexcept override {
    for (auto r = reads_.begin(); r != reads_.end(); ++r) {
      if (r->transfer_id != transfer_id) continue;
      rts = r->rts;
      reads_.erase(r);
      return true;
    }
    return false;
  }
  transport::redirect_result redirect_destination(void* owner,
                                                  const destination_buffer& instead) noexcept override {
    // Called on the link towards the peer; frames from the peer are in the other direction.
    auto result = transport::redirect_result::none;
    for (packet& p : back->pipe_) {
      if (!p.begun || (p.where.owner != owner && p.place.owner != owner)) continue;
      const bool writes = drains && p.head.kind == frame_kind::data;
      if (p.where.owner == owner) transport::move_destination(p.where, writes ? 0 : p.come, instead, p.head);
      if (!writes) p.place = p.where;
      if (result != transport::redirect_result::drains)
        result = writes && p.place.owner == owner ? transport::redirect_result::drains
                                                  : transport::redirect_result::moved;
    }
    return result;
  }
  void drain_destination(void* owner) noexcept override {
    for (packet& p : back->pipe_) {
      if (p.place.owner != owner || p.where.owner == owner) continue;
      p.place = p.where;
      p.come = 0;
    }
  }
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override {
    return bytes <= longest_eager;
  }
  void give_up(errc why, std::string) noexcept override { given_up = why; }
  bool closed() const noexcept override { return gone; }

  // The sender moves one frame, or one slice, into the pipe.
  bool push() {
    outgoing* o = queue_.front();
    if (gone || o == nullptr) return false;
    if (o->head.kind == frame_kind::data) {
      send_slice(*o);
      if (o->progress < o->head.length) return true;
    } else {
      send_whole(*o);
    }
    queue_.pop_front();
    if (lends(*o)) {
      lent_.push_back(*o);
    } else {
      o->done(*o, true);
    }
    return true;
  }
  // The receiver reads the header first, later the first half of the payload, then the rest.
  bool pull(p2p::endpoint& to, int from) {
    if (reported || pipe_.empty()) return false;
    const std::size_t at = next();
    packet& p = pipe_[at];
    if (!p.begun) {
      p.begun = true;
      p.where = p.place = to.begin(from, p.head);
      return true;
    }
    const std::size_t until = p.come == 0 && p.bytes().size() > 1 ? p.bytes().size() / 2 : p.bytes().size();
    const std::size_t end = std::min(p.place.room, until);
    if (end > p.come) std::memcpy(p.place.at + p.come, p.bytes().data() + p.come, end - p.come);
    p.come = until;
    if (p.come < p.bytes().size()) return true;
    packet done = std::move(p);
    pipe_.erase(pipe_.begin() + static_cast<std::ptrdiff_t>(at));
    if (done.place.owner != done.where.owner) release_place(to, done);
    if (done.of != nullptr) give_back(*done.of);
    if (done.head.kind == frame_kind::cancel) back->note_cancel(done.head);
    to.end(from, done.head, done.where);
    return true;
  }
  // The receiver reads one slice of a message in place, on its own link.
  bool read(p2p::endpoint& to, int from) {
    for (auto r = reads_.begin(); r != reads_.end(); ++r) {
      const auto shown = back->shown_.find(r->rts.other_transfer_id);
      if (shown == back->shown_.end()) continue;  // cancelled: the sender's frame follows
      frame head;
      head.kind = frame_kind::data;
      head.context = r->rts.context;
      head.transfer_id = r->transfer_id;
      head.other_transfer_id = r->copied;
      head.length = std::min<std::uint64_t>(slice, r->rts.length - r->copied);
      const destination_buffer into = to.begin(from, head);
      const std::size_t bytes = std::min<std::size_t>(into.room, head.length);
      if (bytes > 0) std::memcpy(into.at, shown->second->payload + r->copied, bytes);
      r->copied += head.length;
      const bool last = into.owner == nullptr || r->copied >= r->rts.length;
      frame answer;
      answer.kind = frame_kind::fin;
      answer.context = r->rts.context;
      answer.transfer_id = r->rts.transfer_id;
      if (last) {
        back->shown_.erase(shown);
        reads_.erase(r);
        if (!gone) pipe_.push_back(packet{answer, {}});
      }
      if (into.owner != nullptr) to.end(from, head, into);
      return true;
    }
    return false;
  }
  // Returns frames that have not left. Frames in the pipe may be lost.
  void hand_back() {
    for (auto* list : {&queue_, &lent_, &drained_})
      while (outgoing* o = list->pop_front()) o->done(*o, false);
  }
  // `to`: the endpoint of the receiver.
  void lose_pipe(p2p::endpoint& to) {
    while (!pipe_.empty()) {
      const packet lost = std::move(pipe_.front());
      pipe_.pop_front();
      if (lost.place.owner != lost.where.owner) release_place(to, lost);
    }
    shown_.clear();
    reads_.clear();
  }
  bool shows_anything() const { return !shown_.empty(); }
  bool idle() const { return queue_.empty() && pipe_.empty(); }

  random_numbers* numbers = nullptr;
  memory_link* back = nullptr;
  bool gone = false;      // in the sender's view
  bool reported = false;  // in the receiver's view
  bool shows = false;     // the peer may read rendezvous messages in place
  bool streams = false;   // a frame cancelled while it waits is still sent
  bool scatters = false;  // data frames arrive in any order and interleaved, and later frames may pass them
  bool passes = false;    // they arrive last
  // They are read from the sender's memory and written to the receiver's as long as they are on the way.
  bool drains = false;
  errc given_up = errc::success;

 private:
  struct packet {
    packet(const frame& h, std::vector<std::byte> bytes) : head(h), payload(std::move(bytes)) {}
    std::span<const std::byte> bytes() const {
      return of != nullptr ? std::span(lent, head.length) : std::span<const std::byte>(payload);
    }
    void copy() {
      payload.assign(lent, lent + head.length);
      of = nullptr;
    }
    frame head;
    std::vector<std::byte> payload;
    outgoing* of = nullptr;  // whose memory is lent
    const std::byte* lent = nullptr;
    bool begun = false;
    std::size_t come = 0;  // bytes of the payload so far
    destination_buffer where;
    destination_buffer place;  // where it is written until it is complete
  };
  bool lends(const outgoing& o) const noexcept {
    return std::ranges::any_of(pipe_, [&o](const packet& p) { return p.of == &o; });
  }
  // A slice of this frame has arrived.
  void give_back(outgoing& o) noexcept {
    if (lends(o) || queue_.has(o)) return;
    o.unlink();
    o.done(o, o.progress >= o.head.length);
  }
  // The payload of a packet that was redirected has come whole, or will not.
  void release_place(p2p::endpoint& to, const packet& p) noexcept {
    const std::size_t bytes = std::min({p.come, p.where.room, p.place.room});
    if (bytes > 0) std::memcpy(p.where.at, p.place.at, bytes);
    const auto same = [&p](const packet& o) {
      return o.place.owner == p.place.owner && o.where.owner != p.place.owner;
    };
    if (p.place.owner != nullptr && std::ranges::none_of(pipe_, same)) to.released(p.place.owner);
  }
  // Selects the frame in the pipe that continues next.
  std::size_t next() {
    if (!scatters && !passes) return 0;
    std::vector<std::size_t> may_come;
    bool first = true;
    for (std::size_t i = 0; i < pipe_.size(); ++i) {
      const bool data = pipe_[i].head.kind == frame_kind::data;
      if ((data && (scatters || may_come.empty())) || (!data && first)) may_come.push_back(i);
      first &= data;
    }
    if (passes) return may_come.back();
    return may_come[static_cast<std::size_t>(numbers->below(may_come.size()))];
  }
  struct reading {
    frame rts;
    std::uint64_t transfer_id;
    std::uint64_t copied;
  };
  void send_slice(outgoing& o) {
    const std::size_t bytes = std::min<std::uint64_t>(slice, o.head.length - o.progress);
    packet p{o.head, {}};
    p.head.length = bytes;
    p.of = &o;
    p.lent = o.payload + o.progress;
    if (!drains) p.copy();
    p.head.other_transfer_id += o.progress;
    pipe_.push_back(std::move(p));
    o.progress += bytes;
  }
  void send_whole(outgoing& o) {
    if (o.head.kind == frame_kind::rts && shows && (numbers == nullptr || !numbers->one_in(3))) {
      o.shown = o.head.other_transfer_id = ++last_shown_;
      shown_.emplace(o.shown, &o);
    }
    packet p{o.head, {}};
    const bool carries = o.head.kind == frame_kind::eager || o.head.kind == frame_kind::fail;
    if (carries) p.payload.assign(o.payload, o.payload + o.head.length);
    pipe_.push_back(std::move(p));
  }
  void note_cancel(frame& head) {
    for (auto r = reads_.begin(); r != reads_.end() && head.other_transfer_id == 0; ++r) {
      if (r->rts.transfer_id != head.transfer_id) continue;
      head.other_transfer_id = r->transfer_id;
      reads_.erase(r);
      return;
    }
  }
  struct list : base::intrusive_list<outgoing, transport::outgoing_tag> {
    bool has(const outgoing& wanted) const noexcept {
      bool any = false;
      for_each([&](const outgoing& o) { any |= &o == &wanted; });
      return any;
    }
  };
  list queue_;
  list lent_;     // all slices have left, some have not arrived
  list drained_;  // cancelled, with slices on the way
  std::deque<packet> pipe_;
  std::map<std::uint64_t, const outgoing*> shown_;  // the sender's
  std::uint64_t last_shown_ = 0;
  std::vector<reading> reads_;  // the receiver's
};

struct owner_base : p2p::context_owner {
  bool admit(int, std::uint32_t, const p2p::fingerprint&) noexcept override { return true; }
  std::string mismatch_text(int, std::uint32_t, const p2p::fingerprint&,
                            const p2p::fingerprint&) const override {
    return "mismatch";
  }
  void failed_remotely(int peer, const p2p::failure_message& told) noexcept override {
    failed_by = peer;
    reason = told.why;
    failure_text = told.text;
    failed.assign(told.failed.begin(), told.failed.end());
  }
  void peer_closed(int peer, errc, const std::string&) noexcept override { closed_by = peer; }
  bool has_member(int) const noexcept override { return others_are_members; }
  bool others_are_members = true;
  int failed_by = -1;
  int closed_by = -1;
  errc reason{};
  std::string failure_text;
  std::vector<int> failed;
};
struct owner final : owner_base {};

struct route final : p2p::router {
  transport::link& link_to(int peer) override { return peer < 2 ? *out : outsider; }
  std::string describe(int peer) const override { return "rank " + std::to_string(peer); }
  memory_link* out = nullptr;
  memory_link outsider;  // to a third rank, which reads nothing
};

struct side {
  side(core::platform& e, int rank, std::uint32_t first_generation, int ranks)
      : engine(e), endpoint(engine, routes, rank, ranks, first_generation) {
    endpoint.open_context(context, listener);
  }
  core::progress_engine engine;
  route routes;
  owner listener;
  p2p::endpoint endpoint;
};

struct pair_of_ranks {
  explicit pair_of_ranks(bool shows = false, std::uint32_t first_generation = 1, int ranks = 2)
      : sides{side(time, 0, first_generation, ranks), side(time, 1, first_generation, ranks)} {
    for (int i = 0; i < 2; ++i) {
      links[i].shows = shows;
      links[i].back = &links[1 - i];
      sides[i].routes.out = &links[i];
    }
  }
  // Like links before their endpoints are destroyed.
  ~pair_of_ranks() {
    for (memory_link& l : links) l.hand_back();
    for (side& s : sides) s.routes.outsider.hand_back();
  }
  // Moves everything until nothing is left.
  void settle() {
    for (bool any = true; any;) {
      any = false;
      for (int i = 0; i < 2; ++i) {
        any |= links[i].push();
        any |= links[i].pull(sides[1 - i].endpoint, i);
        any |= links[i].read(sides[i].endpoint, 1 - i);
        any |= sides[i].engine.poll();
      }
    }
  }
  // One step from rank 0 to rank 1: a frame or slice leaves; a header or half of a payload arrives.
  bool push() { return links[0].push(); }
  bool pull() { return links[0].pull(sides[1].endpoint, 0); }
  bool read() { return links[1].read(sides[1].endpoint, 0); }
  // Delivers all frames for rank 0.
  void answer() {
    while (links[1].push() || links[1].pull(sides[0].endpoint, 1) || sides[0].engine.poll()) {
    }
  }
  bool nothing_left() const {
    for (const side& s : sides) {
      const p2p::endpoint_usage now = s.endpoint.usage();
      if (now.posted + now.unexpected + now.transfer_ids + now.controls > 0 || s.engine.waiting())
        return false;
    }
    return !links[0].shows_anything() && !links[1].shows_anything();
  }
  void close(errc why, bool lose) {
    for (int i = 0; i < 2; ++i) {
      links[i].gone = true;
      if (!lose)
        while (links[i].pull(sides[1 - i].endpoint, i)) {
        }
      links[i].reported = true;
      links[i].lose_pipe(sides[1 - i].endpoint);
    }
    for (int i = 0; i < 2; ++i) {
      links[i].hand_back();
      sides[i].endpoint.closed(1 - i, why, "the link closed");
    }
  }
  frozen_time time;
  std::array<memory_link, 2> links;
  std::array<side, 2> sides;
};

template <class Transfer>
struct watched {
  watched() {
    transfer.user = this;
    transfer.on_done = [](core::completion& a) noexcept {
      auto& self = *static_cast<watched*>(a.user);
      ++self.completions;
      if (std::exchange(self.drains, false)) self.overwrite();
    };
  }
  virtual ~watched() = default;
  // Ends it, as its owner does, which then overwrites the buffer. success: without a completion.
  void end(p2p::endpoint& at, errc why) {
    if (why == errc::success) {
      if (completions == 0) completions = -1;
      at.release(transfer);
    } else {
      at.fail(transfer, why, "ended by its owner");
    }
    drains = transfer.at == Transfer::phase::draining;
    if (!drains) overwrite();
  }
  virtual void overwrite() noexcept {}
  Transfer transfer;
  int completions = 0;
  bool drains = false;  // its buffer is its owner's only when it completes
};

struct a_send : watched<p2p::send> {
  a_send(side& s, int tag, std::size_t bytes, std::uint64_t number) : from(s), data(filled(bytes, number)) {
    if (s.endpoint.start(transfer, context, 1 - s.endpoint.rank(), tag, data.data(), bytes, none))
      ++completions;
  }
  ~a_send() override { from.endpoint.release(transfer); }
  void end(errc why) { watched::end(from.endpoint, why); }
  void overwrite() noexcept override {
    for (std::byte& b : data) b = std::byte{0xDD};
  }
  side& from;
  std::vector<std::byte> data;
};
struct a_receive : watched<p2p::receive> {
  a_receive(side& s, int source, int tag, std::size_t room) : to(s), buffer(room) {
    if (s.endpoint.start(transfer, context, source, tag, buffer.span().data(), room, none)) ++completions;
  }
  ~a_receive() override { to.endpoint.release(transfer); }
  bool has(const std::vector<std::byte>& wanted) {
    const std::span<std::byte> got = buffer.span().first(wanted.size());
    return std::equal(got.begin(), got.end(), wanted.begin());
  }
  void end(errc why) { watched::end(to.endpoint, why); }
  // Later writes to it show in given_back_buffer_intact().
  void overwrite() noexcept override {
    for (std::byte& b : buffer.span()) b = std::byte{0xA5};
  }
  bool given_back_buffer_intact() const { return buffer.untouched(); }
  side& to;
  guarded_buffer buffer;
};

}  // namespace tutti::test::memory_links
