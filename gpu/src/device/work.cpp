// SPDX-License-Identifier: Apache-2.0
#include "device/work_state.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace tutti::gpu {

const char* name_of(path way) noexcept {
  switch (way) {
    case path::automatic:
      return "automatic";
    case path::one_device:
      return "one_device";
    case path::staged:
      return "staged";
  }
  return "?";
}

void work::cancel() noexcept {
  if (state_ && !state_->done && state_->stop != nullptr) state_->stop(*state_, errc::cancelled, "cancelled");
}

namespace detail {

std::shared_ptr<work_state> start(call what) {
  if (what.to == nullptr || what.on == nullptr)
    throw error(errc::invalid_argument, fmt::format("{} on an empty {}", name_of(what.kind),
                                                    what.on == nullptr ? "stream" : "device communicator"));
  const std::shared_ptr<target> to = what.to;
  const std::shared_ptr<attachment> on = what.on->shared_on();
  const operation_kind kind = what.kind;
  errc why = errc::success;
  std::string text;
  try {
    return to->start(std::move(what));
  } catch (const error& e) {
    if (e.code() == errc::wrong_thread) throw;
    why = static_cast<errc>(e.code().value());
    text = e.what();
  }
  // As for requests: what is wrong is thrown from the await.
  auto failed = std::make_shared<work_state>(on, call(kind, nullptr, nullptr));
  failed->fail(why, text);
  return failed;
}

bool is_done(const work_state& w) noexcept { return w.done; }
void abandon(work_state& w) noexcept { w.abandoned = true; }

// ---- work_state ----

work_state::~work_state() {
  open_gates();
  on->give_event(event_);
}

void work_state::open_gates() noexcept {
  for (const auto& g : gates_) g->open();
  gates_.clear();
}

void work_state::set_enqueued(stream_state& s) {
  void* const event = on->take_event();
  try {
    on->driver().record(event, s.native());
  } catch (...) {
    on->give_event(event);
    throw;
  }
  set_enqueued(event, s);
}

void work_state::set_enqueued(void* passed, stream_state& s) {
  event_ = passed;
  if (!gates_.empty()) {
    // The stream opens them when it gets there: no host in between. They stay until it has.
    for (const auto& g : gates_) on->driver().write(s.native(), g->get(), 1);
    s.keep(keeps(gates_.begin(), gates_.end()));
    gates_.clear();
  }
  enqueued = true;
  while (waiter* w = wait_enqueued.pop_front()) on->resume_soon(*w);
}

void work_state::finish_with(stream_state& s) { finish_with(s, s.signal()); }

void work_state::finish_with(stream_state&, point& p) {
  p.alive = std::move(alive);
  for (const view* v : {&what.in, &what.out})
    if (v->keep) p.alive.push_back(v->keep);
  passing_.self = shared_from_this();
  on->wait_for(p, passing_, true);
  // The stream must not be kept by what is in it.
  what.on.reset();
  what.to.reset();
}

void work_state::passing::passed() noexcept {
  const auto work = std::move(self);
  if (work->voided && work->voided->load(std::memory_order_acquire)) return;
  failure() == errc::success ? work->set_done() : work->fail(failure(), text());
}

void work_state::set_done() noexcept {
  if (done) return;
  if (on_done != nullptr && !abandoned) on_done(*this);
  end();
}

void work_state::fail(errc code, const std::string& what_happened) noexcept {
  if (done) return;
  why = code;
  text = what_happened;
  end();
}

void work_state::end() noexcept {
  done = true;
  enqueued = enqueued || why == errc::success;
  resume_waiting();
}

void work_state::resume_waiting() noexcept {
  open_gates();
  for (waiter_list* waiting : {&wait_enqueued, &wait_done})
    while (waiter* w = waiting->pop_front()) {
      if (why != errc::success) w->set_failure(why, text);
      on->resume_soon(*w);
    }
}

void work_state::make_wait(stream_state& s) {
  if (done && why != errc::success) throw error(why, text);
  if (event_ != nullptr) {
    on->driver().wait(s.native(), event_);
    return;
  }
  if (done) return;
  if (!on->driver().can().gate)
    throw error(
        errc::not_supported,
        fmt::format("{} has no gates: a stream cannot wait for {}, which is not in the device's streams yet; "
                    "co_await work.enqueued() first",
                    on->driver().name(), name_of(what.kind)));
  s.refuse_capture();  // before the stream waits for the word, which must outlive the wait
  auto g = std::make_shared<gate_word>(on);
  on->driver().wait(s.native(), g->get(), 1);
  on->add_gate(g);
  s.keep(keeps{g});
  gates_.push_back(std::move(g));
}

void work_state::stand_in_for(work_state& other) noexcept {
  gates_.insert(gates_.end(), other.gates_.begin(), other.gates_.end());
  other.gates_.clear();
  while (waiter* w = other.wait_enqueued.pop_front()) wait_enqueued.push_back(*w);
  if (done) return resume_waiting();
  while (waiter* w = enqueued ? wait_enqueued.pop_front() : nullptr) on->resume_soon(*w);
}

// ---- awaiting ----

work_awaiter::work_awaiter(std::shared_ptr<work_state> w, until u) noexcept
    : suspended(&stop), work_(std::move(w)), until_(u) {}
work_awaiter::~work_awaiter() {
  if (lazy_ && work_) abandon(*work_);
}

bool work_awaiter::wait() {
  try {
    if (lazy_ && !work_) work_ = start(std::move(*lazy_));
  } catch (const error& e) {
    set_failure(static_cast<errc>(e.code().value()), e.what());
    return false;
  }
  if (!work_) {
    set_failure(errc::invalid_argument, "an empty work was awaited");
    return false;
  }
  if (work_->done || (until_ == until::enqueued && work_->enqueued)) {
    if (work_->why != errc::success) set_failure(work_->why, work_->text);
    return false;
  }
  (until_ == until::done ? work_->wait_done : work_->wait_enqueued).push_back(*this);
  return true;
}

void work_awaiter::stop(suspended& self, errc why, const std::string& text) noexcept {
  auto& a = static_cast<work_awaiter&>(self);
  work_state& w = *a.work_;
  if (!a.linked()) return;
  if (a.lazy_ && w.stop != nullptr) {
    w.stop(w, why, text);  // the completion comes, and says what has happened
    return;
  }
  a.set_failure(why, std::string(name_of(w.what.kind)) + " was not awaited to its end: " + text);
  w.on->resume_soon(a);
}

status work_awaiter::await_resume() const {
  rethrow();
  return work_->result;
}

}  // namespace detail
}  // namespace tutti::gpu
