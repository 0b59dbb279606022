// SPDX-License-Identifier: Apache-2.0
// Public functions for Level Zero: GPUs, and kernels of the program.
#include "device/open_once.hpp"
#include "level_zero/driver.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <tutti/level_zero.hpp>

namespace tutti::level_zero {
namespace {

template <class Loop>
gpu::device open_on(Loop& of, int wanted) {
  return gpu::detail::open_once(of, abi::load(), "Level Zero", "level_zero", wanted,
                                &gpu::detail::shared_context_of<level_zero_driver, abi::table>);
}

std::shared_ptr<level_zero_driver> driver_of(const gpu::device& on, const char* what) {
  return gpu::detail::driver_of<level_zero_driver>(on, what, "Level Zero");
}

}  // namespace

int device_count() noexcept { return abi::load().devices(); }
std::string why_not() { return abi::load().why; }

gpu::device open(const communicator& of, int ordinal) { return open_on(of, ordinal); }
gpu::device open(runtime& rt, int ordinal) { return open_on(rt, ordinal); }

handles native(const gpu::device& on) { return driver_of(on, "level_zero::native")->native; }

const gpu::device& stream::checked(const gpu::device& on) {
  static_cast<void>(driver_of(on, "a stream of Level Zero's"));
  return on;
}

_ze_command_list_handle_t* stream::get() const {
  driver_of(on(), "level_zero::stream::get")->order(gpu::stream::native());
  return static_cast<abi::list*>(gpu::stream::native());
}

// ---- kernels of the program ----

struct module::loaded {
  std::shared_ptr<level_zero_driver> of;
  abi::module* handle = nullptr;
  std::map<std::string, abi::kernel*> kernels;
  ~loaded() {
    const std::lock_guard handles(of->calls.handles);
    for (const auto& [name, k] : kernels) of->calls.kernel_destroy(k);
    of->calls.module_destroy(handle);
  }
};

module::module(const gpu::device& on, std::span<const std::byte> image, format is, const char* build_flags) {
  const std::shared_ptr<level_zero_driver> of = driver_of(on, "level_zero::module");
  const abi::table& calls = of->calls;
  abi::module_desc what;
  what.format = is == format::spirv ? abi::format_spirv : abi::format_native;
  what.bytes = image.size();
  what.image = reinterpret_cast<const std::uint8_t*>(image.data());
  what.build_flags = build_flags;
  abi::module* handle = nullptr;
  abi::build_log* log = nullptr;
  const auto create = [&] {
    const std::lock_guard handles(calls.handles);
    return calls.module_create(of->native.context, of->native.device, &what, &handle,
                               calls.wrapped ? nullptr : &log);
  };
  const abi::result code = image.empty() ? abi::invalid_native_binary : create();
  std::string said;
  if (log != nullptr) {
    std::size_t bytes = 0;
    if (code != abi::success && calls.build_log_text(log, &bytes, nullptr) == abi::success && bytes > 1) {
      said.resize(bytes);
      if (calls.build_log_text(log, &bytes, said.data()) != abi::success) said.clear();
      while (!said.empty() && said.back() == '\0') said.pop_back();
    }
    calls.build_log_destroy(log);
  }
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("level_zero::module on {}: {}{}{}", on.name(),
                            calls.explain(code, of->native.driver), said.empty() ? "" : ": ", said));
  state_ = std::make_shared<loaded>();
  state_->of = of;
  state_->handle = handle;
}

void* module::kernel(const char* name) const {
  const level_zero_driver& of = *state_->of;
  const auto known = state_->kernels.find(name);
  if (known != state_->kernels.end()) return known->second;
  abi::kernel_desc what;
  what.name = name;
  abi::kernel* made = nullptr;
  const std::lock_guard handles(of.calls.handles);
  abi::result code = of.calls.kernel_create(state_->handle, &what, &made);
  if (code != abi::success)
    throw error(errc::invalid_argument, fmt::format("level_zero::module: the kernel {}: {}", name,
                                                    of.calls.explain(code, of.native.driver)));
  state_->kernels.emplace(name, made);
  of.check(of.calls.kernel_indirect_access(made, abi::indirect_all), "zeKernelSetIndirectAccess");
  return made;
}

void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments,
                       const std::size_t* sizes, std::size_t count) {
  const std::shared_ptr<level_zero_driver> d = driver_of(in.on(), "level_zero::launch");
  abi::group_count groups;
  groups.x = size.groups;
  d->launch(static_cast<abi::kernel*>(kernel), groups, size.group_size, arguments, sizes, count, in.native());
}

}  // namespace tutti::level_zero
