// SPDX-License-Identifier: Apache-2.0
// A rank's messages to itself: one copy, from the sent buffer to the receive buffer.
#include "transport/transport.hpp"

#include <memory>
#include <optional>

namespace tutti::transport {
namespace {

class self_link final : public peer_link {
 public:
  self_link(polled_transport& through, int rank) noexcept : peer_link(through, rank, phase::connected) {}

  bool submit(outgoing& o) noexcept override {
    // Delivered from move(), as if from a peer: begin() must not run inside submit().
    queue_.push_back(o);
    through_.activate(*this);
    return false;
  }
  cancel_result cancel(outgoing& o) noexcept override {
    o.unlink();
    return cancel_result::gone;
  }
  // Payload is never partly received here: move() copies a frame whole.
  bool redirect_destination(void*, const destination_buffer&) noexcept override { return false; }
  // A small message is copied aside if no receive is posted. A longer one waits for its receive, without a
  // second copy.
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override { return bytes <= 16 * 1024; }

 private:
  bool move() noexcept override {
    list batch;  // frames added by the delivery wait for the next round
    batch.splice_back(queue_);
    const bool any = !batch.empty();
    while (outgoing* const o = batch.pop_front()) {
      through_.up().deliver(peer_, o->head, o->payload);
      o->done(*o, true);
    }
    return any;
  }
  void disconnect(bool) noexcept override {}
  void clear_queues(list& rest) noexcept override { rest.splice_back(queue_); }

  list queue_;
};

class self_transport final : public polled_transport {
 public:
  explicit self_transport(core::loop& loop) noexcept : polled_transport(loop) {}
  ~self_transport() override { cut(); }

  const char* name() const noexcept override { return "self"; }
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

  bool poll() noexcept override { return work_active(); }
  bool arm() noexcept override { return !active_.empty(); }

 private:
  std::optional<self_link> link_;
};

}  // namespace

std::unique_ptr<transport> make_self_transport(core::loop& loop) {
  return std::make_unique<self_transport>(loop);
}

}  // namespace tutti::transport
