// SPDX-License-Identifier: Apache-2.0
// Messages on device memory: a coroutine of tutti::gpu carries out each.
#include "comm/communicator_state.hpp"
#include "comm/explain.hpp"
#include "core/running_task.hpp"
#include "ops/arguments.hpp"
#include "ops/backend.hpp"
#include "ops/messages.hpp"
#include "ops/on_record.hpp"
#include "ops/task_failure.hpp"

#include <fmt/format.h>

#include <new>
#include <tutti/task.hpp>

namespace tutti::ops {
namespace {

using comm::communicator_state;
using detail::operation_state;

class device_message final : public core::completion {
 public:
  device_message(operation_state& s, communicator_state& c) noexcept
      : operation_(s), comm_(c), record_(put_on_record(c, s.what(), 0)) {
    user = this;
    on_done = [](core::completion& a) noexcept {
      auto& self = *static_cast<device_message*>(a.user);
      operation_state& state = self.operation_;
      self.finish();
      state.complete();
    };
    on_expire = [](core::completion& a) noexcept {
      auto& self = *static_cast<device_message*>(a.user);
      if (self.comm_.failed()) return self.end(self.comm_.failure(), self.comm_.failure_text());
      comm::report_hang(self.comm_.of_world());
      self.end(errc::timed_out,
               timeout_text(self.comm_) + why_nothing_came(self.comm_, self.operation_.what()));
    };
  }

  // Returns true if already complete.
  bool start() noexcept {
    try {
      body_.start(detail::communicator_part_of(operation_.what()).execute(operation_), &ended, this);
    } catch (...) {
      ended(this, std::current_exception());
    }
    if (ended_) return true;
    waits_ = true;
    const std::uint64_t cycles = comm_.recorder().stays(record_);
    comm_.engine().begin_wait();
    comm_.watch(*this, operation_.has_deadline(), cycles);
    return false;
  }
  void end(errc why, const std::string& text) noexcept {
    if (ended_) return;
    ended_ = true;
    body_.stop();
    if (why == errc::shut_down) operation_.release_device();
    leave();
    set_failure(why, text);
    comm_.engine().complete(*this);
  }
  void finish() noexcept {
    operation_state& state = operation_;
    leave();
    if (!comm_.detached()) comm_.recorder().end(record_, state_of(failure()));
    if (failure() != errc::success)
      state.fail(failure(), fmt::format("{}: {}", title(comm_, operation_.what()), take_text()));
    state.set_running(nullptr);
    this->~device_message();
    state.release_device();
  }
  void abandon() noexcept {
    leave();
    if (!comm_.detached()) comm_.recorder().end(record_, flight::state::cancelled);
    this->~device_message();
  }

 private:
  static void ended(void* self, std::exception_ptr failure) noexcept {
    auto& m = *static_cast<device_message*>(self);
    m.ended_ = true;
    if (failure) set_failure_of(m, failure);
    if (!m.waits_) return;  // still inside start()
    m.leave();
    m.comm_.engine().complete(m);
  }
  void leave() noexcept {
    static_cast<base::list_hook<core::waiting_tag>&>(*this).unlink();
    static_cast<base::list_hook<core::ready_tag>&>(*this).unlink();
    if (waits_) comm_.engine().end_wait();
    waits_ = false;
  }

  operation_state& operation_;
  communicator_state& comm_;
  const flight::handle record_;
  core::running_task body_;
  bool ended_ = false;
  bool waits_ = false;
};
static_assert(sizeof(device_message) <= operation_state::running_bytes);

bool start_device_message(operation_state& state) {
  auto* const made = new (state.running_storage()) device_message(state, *state.what().comm);
  state.set_running(made);
  if (!made->start()) return false;
  made->finish();
  return true;
}

void stop_device_message(operation_state& state, errc why, const std::string& text) noexcept {
  const std::string nothing =
      why == errc::timed_out ? why_nothing_came(*state.what().comm, state.what()) : "";
  static_cast<device_message*>(state.running())->end(why, text + nothing);
}

void abandon_device_message(operation_state&, void* running) noexcept {
  static_cast<device_message*>(running)->abandon();
}

}  // namespace

const backend device_messages{start_device_message, stop_device_message, abandon_device_message};

}  // namespace tutti::ops
