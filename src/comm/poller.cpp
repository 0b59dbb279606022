// SPDX-License-Identifier: Apache-2.0
#include "base/unique_fd.hpp"
#include "bootstrap/environment.hpp"
#include "comm/communicator_state.hpp"
#include "comm/identity.hpp"
#include "comm/runtime_state.hpp"

#include <sys/eventfd.h>

#include <tutti/detail/deadline.hpp>
#include <tutti/extend/poller.hpp>
#include <tutti/runtime.hpp>

namespace tutti::extend::inline v1 {
namespace {

core::loop& loop_of(runtime& rt, const char* call) {
  core::loop& loop = rt.state().loop();
  if (!loop.claim_this_thread())
    throw error(errc::wrong_thread, std::string(call) + " outside the runtime's loop thread");
  return loop;
}

}  // namespace

struct poller::source final : core::source {
  source(poller& p, core::loop& l, std::chrono::milliseconds t)
      : owner(p),
        loop(l),
        timeout(t),
        eventfd(core::make_eventfd()),
        timer([](void* self) noexcept { static_cast<source*>(self)->owner.timer_fired(); }, this) {
    loop.backend().watch_doorbell(eventfd.get());
    loop.engine().add(*this);
    loop.hold();
    delivery.user = this;
    delivery.on_done = [](core::completion& a) noexcept { static_cast<source*>(a.user)->owner.deliver(); };
  }
  ~source() override {
    static_cast<base::list_hook<core::ready_tag>&>(delivery).unlink();
    for (; waits > 0; --waits) loop.engine().end_wait();
    loop.engine().remove(*this);
    loop.backend().unwatch_doorbell(eventfd.get());
    loop.release();
  }
  bool poll() noexcept override { return owner.poll(); }
  bool arm() noexcept override { return owner.arm(); }
  void disarm() noexcept override { owner.disarm(); }

  poller& owner;
  core::loop& loop;
  const std::chrono::milliseconds timeout;
  const base::unique_fd eventfd;
  core::timer timer;
  core::completion delivery;
  std::size_t waits = 0;
};

poller::poller(runtime& rt, const char* call)
    : source_(std::make_unique<source>(*this, loop_of(rt, call), bootstrap::local_job(0, 1, {}).timeout)) {}
poller::poller(const communicator& of, const char* call) {
  comm::communicator_state& state = comm::state_for(of, call);
  source_ = std::make_unique<source>(*this, state.loop(), state.pending().timeout());
}
poller::~poller() = default;

poller::executor_type poller::get_executor() const noexcept { return source_->loop.executor(); }
std::chrono::milliseconds poller::timeout() const noexcept { return source_->timeout; }
bool poller::on_loop_thread() const noexcept { return source_->loop.on_this_thread(); }
int poller::doorbell() const noexcept { return source_->eventfd.get(); }
void poller::notify() noexcept { static_cast<void>(::eventfd_write(source_->eventfd.get(), 1)); }

void poller::begin_wait() noexcept {
  ++source_->waits;
  source_->loop.engine().begin_wait();
}
void poller::end_wait() noexcept {
  --source_->waits;
  source_->loop.engine().end_wait();
}
std::chrono::nanoseconds poller::spin_budget() const noexcept {
  return source_->loop.yields() ? std::chrono::nanoseconds(0) : source_->loop.spin().budget;
}
void poller::deliver_soon() noexcept {
  if (!static_cast<base::list_hook<core::ready_tag>&>(source_->delivery).linked())
    source_->loop.engine().complete(source_->delivery);
}
void poller::arm_timer(duration from_now) noexcept {
  core::progress_engine& engine = source_->loop.engine();
  engine.timers().arm(source_->timer, detail::after(engine.platform().now(), from_now));
}
void poller::cancel_timer() noexcept { source_->timer.cancel(); }

}  // namespace tutti::extend::inline v1
