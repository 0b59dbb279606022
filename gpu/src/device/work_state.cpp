// SPDX-License-Identifier: Apache-2.0
#include "device/work_state.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace tutti::gpu::impl {

work_state::~work_state() {
  open_gates();
  on->give_event(event_);
}

void work_state::open_gates() noexcept {
  for (const auto& g : gates_) g->open();
  gates_.clear();
}

void work_state::finish_in(stream_state& s) {
  event_ = on->take_event();
  on->driver().record(event_, s.native());
  set_enqueued(event_, s);
  finish_at(s.signal());
}

void work_state::set_enqueued(void* passed, stream_state& s) {
  event_ = passed;
  if (!gates_.empty()) {
    // The stream opens the gates without the host, and keeps them until then.
    for (const auto& g : gates_) on->driver().write(s.native(), g->get(), 1);
    s.keep(keeps(gates_.begin(), gates_.end()));
    gates_.clear();
  }
  enqueued = true;
  on->resume_soon(wait_enqueued);
}

void work_state::finish_at(point& p) {
  p.alive = std::move(alive);
  for (const view* v : {&what.in, &what.out})
    if (v->keep) p.alive.push_back(v->keep);
  passing_.self = shared_from_this();
  on->wait_for(p, passing_, true);
}

void work_state::passing::done() noexcept {
  const auto work = std::move(self);
  if (work->voided && work->voided->load(std::memory_order_acquire)) return;
  failure() ? work->fail(*failure()) : work->set_done();
}

void work_state::set_done() noexcept {
  if (done) return;
  if (what.kind == operation_kind::download && !abandoned && what.in.bytes() > 0)
    std::memcpy(what.out.data, owner, what.in.bytes());
  end();
}

void work_state::fail(const error& e) noexcept {
  if (done) return;
  failure = e;
  end();
}

void work_state::end() noexcept {
  done = true;
  enqueued = enqueued || !failure;
  open_gates();
  for (waiter_list* waiting : {&wait_enqueued, &wait_done}) on->resume_soon(*waiting, failure);
}

void work_state::make_wait(stream_state& s) {
  if (done) rethrow();
  s.refuse_work_of(*on);
  if (event_ != nullptr) {
    on->driver().wait(s.native(), event_);
    return;
  }
  if (done) return;
  if (!on->driver().can().gate)
    throw error(
        errc::not_supported,
        fmt::format("{} has no gates: a stream cannot wait for {}, which is not in the device's streams yet; "
                    "await it instead",
                    on->driver().name(), name_of(what.kind)));
  gates_.push_back(s.close(on));
}

void working_part::end_work() noexcept {
  const std::shared_ptr<work_state> w = std::exchange(work_, nullptr);
  w->what.whole = nullptr;
  w->what.ready.reset();
  if (w->done) return;
  const error ended(errc::cancelled, "it has ended early");
  if (w->stop != nullptr) w->stop(*w, ended);
  if (!w->enqueued) w->fail(ended);
}

}  // namespace tutti::gpu::impl
