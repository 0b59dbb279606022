// SPDX-License-Identifier: Apache-2.0
// Messages on device memory: a coroutine of tutti::gpu carries out each.
#include "ops/arguments.hpp"
#include "ops/backend.hpp"
#include "ops/messages.hpp"
#include "ops/task_operation.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace tutti::ops {
namespace {

using comm::communicator_state;
using detail::operation_state;

class device_message final : public task_operation<device_message> {
 public:
  device_message(operation_state& s, communicator_state& c) noexcept
      : task_operation(s, c), record_(put_on_record(c, s.what(), 0)) {
    on_expire = [](core::completion& a) noexcept {
      auto& self = static_cast<device_message&>(a);
      expire(self, self.operation_.what());
    };
  }

  // Returns true if already complete.
  bool start() noexcept {
    return task_operation::start(
        record_, [this] { return detail::communicator_part_of(operation_.what()).execute(operation_); });
  }
  void end(errc why, const std::string& text) noexcept {
    if (!std::exchange(ended_, true)) stop_body(why, text);
  }
  operation_state& finish() noexcept {
    if (!comm_.detached()) comm_.recorder().end(record_, state_of(failure()));
    if (failure() != errc::success)
      operation_.fail(failure(), fmt::format("{}: {}", title(comm_, operation_.what()), take_text()));
    return destroy();
  }
  void abandon() noexcept {
    leave();
    if (!comm_.detached()) comm_.recorder().end(record_, flight::state::cancelled);
    this->~device_message();
  }

 private:
  const flight::handle record_;
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
