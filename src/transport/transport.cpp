// SPDX-License-Identifier: Apache-2.0
#include "transport/transport.hpp"

#include <algorithm>
#include <chrono>

namespace tutti::transport {

link& transport::link_to(int peer) { return at(peer); }
link* transport::made_link(int peer) noexcept {
  const std::unique_ptr<peer_link>* const at = links_.find(static_cast<std::size_t>(peer));
  return at != nullptr ? at->get() : nullptr;
}

bool transport::has_queue() const noexcept {
  return std::ranges::any_of(live_, [](const link* l) { return !l->closed() && l->has_queue(); });
}

task<> transport::leave(core::time_point deadline) {
  constexpr auto between_checks = std::chrono::milliseconds(1);
  if (!attached_) co_return;  // already cut: queued frames have nowhere to go
  leaving_ = true;
  for (peer_link* l : live_) l->leave();
  while (attached_ && !has_left() && loop_.engine().platform().now() < deadline) {
    co_await core::pause(loop_, between_checks);
  }
  for (peer_link* l : live_) l->drop();
  left_ = attached_;
  cut();
}

void transport::cut() noexcept {
  leaving_ = true;
  for (peer_link* l : live_) l->cut();
  leave_loop();
}

void transport::start(const core::world_info& info, inbound& up) {
  links_.resize(static_cast<std::size_t>(info.size));
  info_ = &info;
  up_ = &up;
  loop_.engine().add(*this);
  loop_.hold();
  attached_ = true;
}

void transport::end() noexcept {
  cut();
  live_.clear();
  links_.resize(0);
}

peer_link& transport::at(int peer) {
  std::unique_ptr<peer_link>& l = links_[static_cast<std::size_t>(peer)];
  if (!l) {
    if (live_.size() == live_.capacity()) live_.reserve(2 * live_.size() + 1);
    l = make_link(peer);
    live_.push_back(l.get());
    if (leaving_ || !attached_) l->drop();
  }
  return *l;
}

// ---- a rank's messages to itself: one copy, from the sent buffer to the receive buffer ----

namespace {

class self_link final : public peer_link {
 public:
  self_link(transport& through, int rank) noexcept : peer_link(through, rank, phase::connected) {}

  bool submit(outgoing& o) noexcept override {
    // Delivered from move(), as if from a peer: begin() must not run inside submit().
    messages_.push_back(o);
    through_.activate(*this);
    return false;
  }

 private:
  bool move() noexcept override {
    list batch;  // frames added by the delivery wait for the next round
    batch.splice_back(messages_);
    const bool any = !batch.empty();
    while (outgoing* const o = batch.pop_front()) {
      through_.up().deliver(peer_, o->head, o->payload);
      o->done(*o, true);
    }
    return any;
  }
  void disconnect(bool) noexcept override {}
};

class self_transport final : public transport {
 public:
  explicit self_transport(core::loop& loop) noexcept : transport(loop) {}
  ~self_transport() override { end(); }

  const char* name() const noexcept override { return "self"; }

  void open(const core::world_info& info, inbound& up) override {
    start(info, up);
    at(info.rank);
  }
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override {
    return mine.rank == peer.rank;
  }
  bool has_queue() const noexcept override { return false; }  // nobody else waits for it
  task<> leave(core::time_point) override {
    cut();
    co_return;
  }

 private:
  std::unique_ptr<peer_link> make_link(int rank) override { return std::make_unique<self_link>(*this, rank); }
};

}  // namespace

std::unique_ptr<transport> make_self_transport(core::loop& loop) {
  return std::make_unique<self_transport>(loop);
}

}  // namespace tutti::transport
