// SPDX-License-Identifier: Apache-2.0
#include "device_place.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <tutti/cuda.hpp>
#include <tutti/error.hpp>
#include <tutti/gpu/open.hpp>
#include <tutti/tutti.hpp>
#include <utility>

namespace tutti::python {

void device_place::begin() const {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream current = guard.getStream(device);
  TORCH_CHECK_VALUE(
      !guard.isStreamCapturing(current),
      "tutti: the current stream is being captured into a graph, which would not run what the host "
      "does in between: communicate before or after the capture");
  c10::Event now(device.type());
  now.record(current);
  now.block(stream);
}

void device_place::close() noexcept {
  as_tutti = {};
  opened = {};
}

// PyTorch has its device-generic functions of streams for CUDA and for devices of one's own. AMD's GPUs have CUDA's name.
std::string why_always_staged(c10::Device on) {
  if (!on.is_cuda() && !on.is_privateuseone())
    return c10::str("tutti::gpu has no streams of PyTorch for ", on.type());
  try {
    const c10::impl::VirtualGuardImpl guard(on.type());
    static_cast<void>(guard.getStreamNativeHandle(guard.getStreamFromGlobalPool(on)));
  } catch (const c10::Error& e) {
    return c10::str("PyTorch gives no streams of ", on.type(), ": ", e.what_without_backtrace());
  }
  return {};
}

std::shared_ptr<device_place> make_place(c10::Device on) {
  const c10::impl::VirtualGuardImpl guard(on.type());
  if (on.index() < 0) on = guard.getDevice();
  return std::make_shared<device_place>(on, guard.getStreamFromGlobalPool(on));
}

task<> decide(communicator world, std::shared_ptr<device_place> made, const void* memory,
              placement* decision) {
  const c10::Stream stream = made->stream;
  gpu::open_options how;
  how.kind = gpu::device_kind::cuda;
  how.ordinal = made->device.index();
  try {
    made->opened = co_await gpu::open(world, how);
  } catch (const error& e) {
    if (e.code() != errc::not_supported) throw;
    decision->why_staged = e.what();
  }
  if (made->opened) {
    try {
      const c10::impl::VirtualGuardImpl guard(stream.device_type());
      made->as_tutti =
          cuda::stream::borrow(made->opened, static_cast<CUstream_st*>(guard.getStreamNativeHandle(stream)));
      const gpu::memory_kind kind = made->opened.describe(memory).kind;
      if (kind != gpu::memory_kind::device && kind != gpu::memory_kind::managed)
        decision->why_staged = c10::str("memory of ", made->device, " is not ", made->opened.name(), "'s");
    } catch (const std::exception& e) {
      decision->why_staged = e.what();
    }
    std::int32_t fits = decision->why_staged.empty() ? 1 : 0;
    co_await world.all_reduce(fits, tutti::min);
    if (fits == 1) {
      decision->place = made;
    } else {
      made->close();
      if (decision->why_staged.empty()) decision->why_staged = "another rank's device does not fit";
    }
  }
  decision->decided = true;
}

}  // namespace tutti::python
