// SPDX-License-Identifier: Apache-2.0
#include "transport/self/self_transport.hpp"

namespace tutti::transport::self {

bool self_transport::submit(outgoing& o) noexcept {
  // Delivered from poll(), as if from a peer: begin() must not run inside submit().
  queue_.push_back(o);
  loop_.wake();
  return false;
}

bool self_transport::poll() noexcept {
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

void self_transport::cut() noexcept {
  if (!attached_) return;
  attached_ = false;
  loop_.engine().remove(*this);
}

}  // namespace tutti::transport::self
