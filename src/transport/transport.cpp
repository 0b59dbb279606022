// SPDX-License-Identifier: Apache-2.0
#include "transport/transport.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

namespace tutti::transport {

bool linked_transport::has_queue() const noexcept {
  return std::ranges::any_of(live_, [](const link* l) { return !l->closed() && l->has_queue(); });
}

task<> linked_transport::leave(core::time_point deadline) {
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

void linked_transport::cut() noexcept {
  leaving_ = true;
  for (peer_link* l : live_) l->cut();
  leave_loop();
}

void linked_transport::start(const core::world_info& info, inbound& up) {
  links_.resize(static_cast<std::size_t>(info.size));
  join_loop(info, up);
}

void linked_transport::end() noexcept {
  cut();
  live_.clear();
  links_.clear();
}

peer_link& linked_transport::at(int peer) {
  std::unique_ptr<peer_link>& l = links_[static_cast<std::size_t>(peer)];
  if (!l) {
    live_.reserve(live_.size() + 1);
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
  ~self_transport() override { cut(); }

  void open(const core::world_info& info, inbound& up) override {
    link_.emplace(*this, info.rank);
    join_loop(info, up);
  }
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override {
    return mine.rank == peer.rank;
  }
  link& link_to(int) override { return *link_; }
  bool has_queue() const noexcept override { return false; }  // nobody else waits for it
  task<> leave(core::time_point) override {
    cut();
    co_return;
  }
  void cut() noexcept override {
    leaving_ = true;
    if (link_) link_->cut();
    leave_loop();
  }

 private:
  std::optional<self_link> link_;
};

}  // namespace

std::unique_ptr<transport> make_self_transport(core::loop& loop) {
  return std::make_unique<self_transport>(loop);
}

}  // namespace tutti::transport
