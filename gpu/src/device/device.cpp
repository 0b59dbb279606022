// SPDX-License-Identifier: Apache-2.0
#include "device/attachment.hpp"

#include <tutti/gpu/device.hpp>

namespace tutti::gpu {

const char* name_of(memory_kind kind) noexcept {
  constexpr const char* names[] = {"host", "pinned", "device", "managed", "unknown"};
  return names[static_cast<std::size_t>(kind)];
}

std::string device::name() const { return state_ ? state_->driver().name() : "no device"; }
int device::ordinal() const noexcept { return state_ ? state_->driver().ordinal() : -1; }
capabilities device::can() const noexcept { return state_ ? state_->driver().can() : capabilities{}; }
bool device::failed() const noexcept { return state_ && state_->failed(); }
memory_info device::describe(const void* memory) const noexcept {
  return state_ ? state_->driver().describe(memory) : memory_info{};
}
void device::set_gate_limit(int gates) noexcept {
  if (state_) state_->gate_limit = gates;
}

namespace detail {

std::shared_ptr<allocation> allocate(const device& on, std::size_t bytes, memory_kind kind) {
  if (!on)
    throw error(errc::invalid_argument, "device memory was asked for on no device (the handle is empty)");
  on.state().check();
  struct owned : allocation {
    std::shared_ptr<detail::driver> driver;
    memory_kind kind = memory_kind::device;
    ~owned() {
      if (data != nullptr) driver->free(data, kind);
    }
  };
  auto made = std::make_shared<owned>();
  made->driver = on.state().shared_driver();
  made->kind = kind;
  if (bytes > 0) made->data = made->driver->allocate(bytes, kind);
  return made;
}

}  // namespace detail
}  // namespace tutti::gpu
