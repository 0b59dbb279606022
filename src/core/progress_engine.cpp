// SPDX-License-Identifier: Apache-2.0
#include "core/progress_engine.hpp"

namespace tutti::core {
namespace {

// Completions delivered in one round before the sources and the loop get their turn again.
constexpr int completions_per_round = 64;

}  // namespace

void completion::set_failure(errc code, std::string text) noexcept {
  failure_ = code;
  text_ = std::make_unique<std::string>(std::move(text));
}

std::string completion::take_text() noexcept { return text_ ? std::move(*text_) : std::string(); }

void progress_engine::remove(source& s) noexcept {
  std::erase(sources_, &s);
  std::erase(sleepers_, &s);
}

void progress_engine::abandon() noexcept {
  sources_.clear();
  sleepers_.clear();
  while (ready_.pop_front() != nullptr) {
  }
}

bool progress_engine::deliver_some() noexcept {
  int left = completions_per_round;
  do {
    completion& done = *ready_.pop_front();
    done.on_done(done);
    if (is_parents()) abandon();
  } while (--left > 0 && !ready_.empty());
  return true;
}

bool progress_engine::poll() noexcept {
  bool any = deliver();
  // By index: completions are delivered later, but polling may still add or remove a source.
  for (std::size_t i = 0; i < sources_.size(); ++i)
    if (sources_[i]->poll()) {
      any = true;
      deliver();
    }
  // Completions from a source that did no work itself.
  return deliver() || any;
}

void progress_engine::read_clock() noexcept {
  now_ = platform_.now();
#if defined(__x86_64__)
  cycles_then_ = base::cycles();
#endif
}

bool progress_engine::tick() noexcept {
  read_clock();
  const bool fired = timers_.fire_due(now_);
  if (fired && is_parents()) abandon();
  return fired;
}

bool progress_engine::arm() noexcept {
  bool any = !ready_.empty();
  // By index: arming polls, which may add a source, or remove the one that is armed.
  for (std::size_t i = 0; i < sources_.size();) {
    source* const s = sources_[i];
    any |= s->arm();
    if (i < sources_.size() && sources_[i] == s) ++i;
  }
  for (source* s : sleepers_) any |= s->arm();
  any |= !ready_.empty();
  if (any) disarm();
  return any;
}

void progress_engine::disarm() noexcept {
  for (source* s : sources_) s->disarm();
}

}  // namespace tutti::core
