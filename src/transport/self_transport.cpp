// SPDX-License-Identifier: Apache-2.0
// A rank's messages to itself: one copy, from the sent buffer to the receive buffer.
#include "transport/transport.hpp"

#include <memory>
#include <string>
#include <utility>

namespace tutti::transport {
namespace {

class self_transport final : public transport, public link, public core::source {
 public:
  explicit self_transport(core::loop& loop) noexcept : loop_(loop) {}
  ~self_transport() override { cut(); }

  const char* name() const noexcept override { return "self"; }
  void open(const core::world_info& info, inbound& up) override {
    rank_ = info.rank;
    up_ = &up;
    loop_.engine().add(*this);
    attached_ = true;
  }
  bool reaches(const core::endpoint_record& mine, const core::endpoint_record& peer) const noexcept override {
    return mine.rank == peer.rank;
  }
  link& link_to(int) override { return *this; }
  bool has_queue() const noexcept override { return false; }  // nobody else waits for it
  task<> leave(core::time_point) override {
    cut();
    co_return;
  }
  void cut() noexcept override {
    if (!attached_) return;
    attached_ = false;
    loop_.engine().remove(*this);
  }

  bool submit(outgoing& o) noexcept override {
    // Delivered from poll(), as if from a peer: begin() must not run inside submit().
    queue_.push_back(o);
    loop_.wake();
    return false;
  }
  cancel_result cancel(outgoing& o) noexcept override {
    o.unlink();
    return cancel_result::gone;
  }
  // Payload is never partly received here: poll() copies a frame whole.
  bool redirect_destination(void*, const destination_buffer&) noexcept override { return false; }
  // A small message is copied aside if no receive is posted. A longer one waits for its receive, without a
  // second copy.
  bool sends_eagerly(const void*, std::size_t bytes) const noexcept override { return bytes <= 16 * 1024; }
  bool closed() const noexcept override { return !attached_; }
  void give_up(errc why, std::string text) noexcept override {
    why_ = why;
    text_ = std::move(text);
    loop_.wake();
  }

  bool poll() noexcept override {
    if (queue_.empty() && why_ == errc::success) return false;
    // Frames added by the delivery wait for the next round.
    base::intrusive_list<outgoing, outgoing_tag> batch;
    batch.splice_back(queue_);
    bool any = false;
    if (why_ != errc::success) {
      while (outgoing* o = batch.pop_front()) o->done(*o, false);
      up_->closed(rank_, std::exchange(why_, errc::success), std::move(text_));
      return true;
    }
    while (outgoing* o = batch.pop_front()) {
      any = true;
      up_->deliver(rank_, o->head, o->payload);
      o->done(*o, true);
    }
    return any;
  }
  bool arm() noexcept override { return !queue_.empty() || why_ != errc::success; }

 private:
  core::loop& loop_;
  inbound* up_ = nullptr;
  int rank_ = 0;
  bool attached_ = false;
  errc why_ = errc::success;  // of its end, which poll() reports
  std::string text_;
  base::intrusive_list<outgoing, outgoing_tag> queue_;
};

}  // namespace

std::unique_ptr<transport> make_self_transport(core::loop& loop) {
  return std::make_unique<self_transport>(loop);
}

}  // namespace tutti::transport
