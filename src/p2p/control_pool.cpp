// SPDX-License-Identifier: Apache-2.0
#include "p2p/control_pool.hpp"

#include "base/heap_use.hpp"

#include <utility>

namespace tutti::p2p {

void control_pool::post(transport::link& to, control_frame f) noexcept {
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique<control>());
    base::count_heap_use(sizeof(control));
    free_.push_back(all_.back().get());
  }
  control* const c = free_.back();
  free_.pop_back();
  c->owner = this;
  c->payload_bytes = std::move(f.payload);
  c->head = f.head;
  c->payload = c->payload_bytes.data();
  c->progress = 0;
  c->done = [](transport::outgoing& o, bool) noexcept {
    auto& done = static_cast<control&>(o);
    done.owner->free_.push_back(&done);
  };
  if (to.submit(*c)) free_.push_back(c);
}

}  // namespace tutti::p2p
