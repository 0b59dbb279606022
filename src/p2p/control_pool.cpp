// SPDX-License-Identifier: Apache-2.0
#include "p2p/control_pool.hpp"

#include "base/heap_use.hpp"

#include <new>
#include <utility>

namespace tutti::p2p {

constexpr std::size_t controls_in_reserve = 16;

control_pool::control_pool() {
  all_.reserve(2 * controls_in_reserve);
  while (all_.size() < controls_in_reserve)
    if (!add_one()) throw std::bad_alloc();
}

bool control_pool::add_one() noexcept {
  try {
    free_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique<control>());
    base::count_heap_use(sizeof(control));
  } catch (const std::bad_alloc&) {
    return false;
  }
  free_.push_back(all_.back().get());
  return true;
}

bool control_pool::post(transport::link& to, const transport::frame& head,
                        std::vector<std::byte> payload) noexcept {
  if (free_.size() < controls_in_reserve / 2) add_one();
  if (free_.empty()) return false;
  control* const c = free_.back();
  free_.pop_back();
  c->owner = this;
  c->payload_bytes = std::move(payload);
  c->head = head;
  c->payload = c->payload_bytes.data();
  c->progress = 0;
  c->done = [](transport::outgoing& o, bool) noexcept {
    auto& done = static_cast<control&>(o);
    done.owner->free_.push_back(&done);
  };
  if (to.submit(*c)) free_.push_back(c);
  return true;
}

}  // namespace tutti::p2p
