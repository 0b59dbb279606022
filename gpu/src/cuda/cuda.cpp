// SPDX-License-Identifier: Apache-2.0
// Public functions for CUDA: GPUs, and kernels of the program.
#include "cuda/driver.hpp"
#include "device/open_once.hpp"

#include <fmt/format.h>

#include <tutti/cuda.hpp>

namespace tutti::cuda {
namespace {

template <class Loop>
gpu::device open_on(Loop& of, int wanted) {
  return gpu::detail::open_once(
      of, abi::load(), "CUDA", "cuda", wanted, [](const abi::table& calls, int ordinal) {
        return std::make_shared<cuda_driver>(gpu::detail::shared_context_of<shared_context>(calls, ordinal));
      });
}

}  // namespace

int device_count() noexcept { return abi::load().devices(); }
std::string why_not() { return abi::load().why; }

gpu::device open(const communicator& of, int ordinal) { return open_on(of, ordinal); }
gpu::device open(runtime& rt, int ordinal) { return open_on(rt, ordinal); }

const gpu::device& stream::checked(const gpu::device& on) {
  if (!on || dynamic_cast<cuda_driver*>(&on.state().driver()) == nullptr)
    throw error(errc::invalid_argument,
                fmt::format("a CUDA stream on {}, which is none of CUDA's devices", on.name()));
  return on;
}

// ---- kernels of the program ----

struct module::loaded {
  std::shared_ptr<shared_context> of;
  abi::module* handle = nullptr;
  ~loaded() {
    const in_context here(*of);
    of->calls.module_unload(handle);
  }
};

module::module(const gpu::device& on, const void* image) {
  const std::shared_ptr<shared_context> of =
      gpu::detail::driver_of<cuda_driver>(on, "cuda::module", "CUDA")->shared();
  const in_context here(*of);
  abi::module* handle = nullptr;
  const abi::result code =
      image == nullptr ? abi::error_invalid_value : of->calls.module_load(&handle, image);
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("cuda::module on {}: {}", on.name(), of->calls.explain(code)));
  state_ = std::make_shared<loaded>();
  state_->of = of;
  state_->handle = handle;
}

void* module::kernel(const char* name) const {
  const shared_context& of = *state_->of;
  const in_context here(of);
  abi::function* found = nullptr;
  const abi::result code = of.calls.module_function(&found, state_->handle, name);
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("cuda::module: the kernel {}: {}", name, of.calls.explain(code)));
  return found;
}

void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments) {
  gpu::detail::driver_of<cuda_driver>(in.on(), "cuda::launch", "CUDA")
      ->launch(kernel, size.blocks, size.threads, arguments, in.native());
}

}  // namespace tutti::cuda
