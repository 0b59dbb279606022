// SPDX-License-Identifier: Apache-2.0
// CUDA IPC: exports memory and events of this process, and opens those of others.
#include "cuda/driver.hpp"

#include <tutti/error.hpp>

namespace tutti::cuda {

using gpu::detail::shared_name;

gpu::detail::process_sharing* cuda_driver::sharing() noexcept {
  const bool all = calls_.ipc_name_memory != nullptr && calls_.ipc_open_memory != nullptr &&
                   calls_.ipc_close_memory != nullptr && calls_.ipc_name_event != nullptr &&
                   calls_.ipc_open_event != nullptr;
  return all ? this : nullptr;
}

shared_name cuda_driver::name_memory(void* start) {
  abi::ipc_memory h{};
  call("cuIpcGetMemHandle", calls_.ipc_name_memory, &h, reinterpret_cast<abi::device_pointer>(start));
  return shared_name(h);
}

void* cuda_driver::open_memory(const shared_name& of) {
  abi::device_pointer opened = 0;
  call("cuIpcOpenMemHandle", calls_.ipc_open_memory, &opened, of.as<abi::ipc_memory>(),
       abi::ipc_lazy_peer_access);
  return reinterpret_cast<void*>(opened);
}

void cuda_driver::close_memory(void* opened) noexcept {
  const in_context here(*on_);
  calls_.ipc_close_memory(reinterpret_cast<abi::device_pointer>(opened));
}

void* cuda_driver::make_shared_event(shared_name& name) {
  const in_context here(*on_);
  abi::event* made = nullptr;
  check(calls_.event_create(&made, abi::event_disable_timing | abi::event_interprocess), "cuEventCreate");
  abi::ipc_event h{};
  if (const abi::result code = calls_.ipc_name_event(&h, made); code != abi::success) {
    calls_.event_destroy(made);
    check(code, "cuIpcGetEventHandle");
  }
  name = shared_name(h);
  return made;
}

void* cuda_driver::open_event(const shared_name& of) {
  abi::event* opened = nullptr;
  call("cuIpcOpenEventHandle", calls_.ipc_open_event, &opened, of.as<abi::ipc_event>());
  return opened;
}

}  // namespace tutti::cuda
