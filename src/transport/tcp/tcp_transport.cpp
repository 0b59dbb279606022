// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.hpp"

#include "core/host_identity.hpp"
#include "transport/tcp/listen_address.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport::tcp {
namespace {

using phase = tcp_link::phase;

// A round takes a third of a microsecond or more: this is about as long as a loop spins.
constexpr unsigned rounds_expected = 200;

}  // namespace

tcp_transport::tcp_transport(core::loop& loop) : polled_transport(loop), changed_(loop.executor()) {}

tcp_transport::~tcp_transport() { cut(); }

void tcp_transport::listen(core::endpoint_record& mine, const listen_wish& wish) {
  listener opened = open_listener(listen_address(wish));
  listener_ = std::move(opened.fd);
  mine.tcp_endpoints.push_back(std::move(opened.endpoint));
}

void tcp_transport::open(const core::world_info& info, inbound& up) {
  links_.resize(static_cast<std::size_t>(info.size));
  loop_.backend();  // before this in the engine's order: its events are handled in the same round
  join_loop(info, up);
  connector_.emplace(loop_, *this, std::move(listener_));
}

bool tcp_transport::reaches(const core::endpoint_record& mine,
                            const core::endpoint_record& peer) const noexcept {
  for (const std::string& endpoint : peer.tcp_endpoints)
    if (!is_loopback(endpoint) || core::share_loopback(mine.host_id, peer.host_id)) return true;
  return false;
}

tcp_link& tcp_transport::at(int peer) {
  std::unique_ptr<tcp_link>& l = links_[static_cast<std::size_t>(peer)];
  if (!l) {
    l = std::make_unique<tcp_link>(*this, peer, *up_);
    if (leaving_ || !attached_) l->drop();
  }
  return *l;
}

void tcp_transport::activate(tcp_link& l) noexcept {
  if (!l.linked()) active_.push_back(l);
  loop_.wake();
}

void tcp_transport::expect_more(tcp_link& l) noexcept {
  expected* place = nullptr;
  for (expected& e : expected_) {
    if (e.from == &l) {
      e.rounds = 0;
      return;
    }
    if (place == nullptr || e.from == nullptr || (place->from != nullptr && e.rounds > place->rounds))
      place = &e;
  }
  *place = expected{&l, 0};
  loop_.backend().set_glanced_at(true);
}

void tcp_transport::expect_nothing(tcp_link& l) noexcept {
  bool any = false;
  for (expected& e : expected_) {
    if (e.from == &l) e = expected{};
    any |= e.from != nullptr;
  }
  if (!any) loop_.backend().set_glanced_at(false);
}

bool tcp_transport::glance() noexcept {
  bool any = false;
  bool all_between = false;
  for (expected& e : expected_) {
    tcp_link* const l = e.from;
    if (l == nullptr) continue;
    // The rest of a long payload is better read in large parts.
    if (l->amid_long_payload()) {
      loop_.backend().set_glanced_at(false);
      return any;
    }
    all_between = true;
    if (l->glance()) {
      any = true;
    } else {
      loop_.note_system_call();
      if (e.from == l && ++e.rounds >= rounds_expected) expect_nothing(*l);
    }
  }
  if (all_between) loop_.backend().set_glanced_at(true);
  return any;
}

bool tcp_transport::poll() noexcept {
  const bool any_come = glance();
  return work(active_) || any_come;
}

bool tcp_transport::has_queue() const noexcept {
  return std::any_of(links_.begin(), links_.end(),
                     [](const std::unique_ptr<tcp_link>& l) { return l && !l->closed() && l->has_queue(); });
}

task<> tcp_transport::leave(core::time_point deadline) {
  if (!attached_) co_return;
  leaving_ = true;
  for (const auto& l : links_)
    if (l) l->leave();
  while (attached_) {
    bool any_open = false;
    bool any_unconnected = false;
    for (const auto& l : links_) {
      if (!l || l->closed()) continue;
      any_open = true;
      any_unconnected |= l->at() != phase::connected;
    }
    if (!any_open) break;
    // A link whose queue still waits for its connection may need the one that its peer makes.
    if (!any_unconnected) connector_->stop_listening();
    const bool in_time = co_await changed_.wait(deadline);
    if (!in_time) break;
  }
  for (const auto& l : links_)
    if (l) l->drop();
  detach();
}

void tcp_transport::cut() noexcept {
  leaving_ = true;
  for (const auto& l : links_)
    if (l) l->cut();
  detach();
}

void tcp_transport::detach() noexcept {
  listener_.reset();
  connector_.reset();
  leave_loop();
}

}  // namespace tutti::transport::tcp
