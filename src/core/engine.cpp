// SPDX-License-Identifier: Apache-2.0
#include "core/engine.hpp"

#include <algorithm>

namespace tutti::core {
namespace {

// Completions delivered in one round before the sources and the loop get their turn again.
constexpr int completions_per_round = 64;

}  // namespace

void activity::set_failure(errc code, std::string text) noexcept {
  failure_ = code;
  text_ = std::make_unique<std::string>(std::move(text));
}

void engine::remove(source& s) noexcept { std::erase(sources_, &s); }

bool engine::deliver() noexcept {
  bool any = false;
  for (int i = 0; i < completions_per_round; ++i) {
    activity* a = ready_.pop_front();
    if (a == nullptr) break;
    any = true;
    ++completions_;
    a->on_done(*a);
  }
  return any;
}

bool engine::poll() noexcept {
  bool any = deliver();
  // By index: what a source completes is delivered later, but polling may still add or remove a source.
  for (std::size_t i = 0; i < sources_.size(); ++i) any |= sources_[i]->poll();
  any |= deliver();
  return any;
}

bool engine::tick() noexcept {
  now_ = environment_.now();
  return timers_.fire_due(now_);
}

bool engine::arm() noexcept {
  bool news = !ready_.empty();
  for (source* s : sources_) news |= s->arm();
  news |= !ready_.empty();
  if (news) disarm();
  return news;
}

void engine::disarm() noexcept {
  for (source* s : sources_) s->disarm();
}

}  // namespace tutti::core
