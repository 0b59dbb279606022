// SPDX-License-Identifier: Apache-2.0
// What the rest of the library needs of CUDA's devices.
#pragma once

#include "cuda/cuda_api.hpp"
#include "device/driver.hpp"

#include <memory>
#include <tutti/gpu/device.hpp>

namespace tutti::cuda {

// Loads libcuda and makes the driver of a device, numbered as for open(), with its context: the slow part of opening
// it. Any thread may call it. The result keeps both; null if there is no such device.
std::shared_ptr<gpu::detail::driver> make_context(int ordinal);

// Whether it is one of CUDA's devices.
bool is_cuda(const gpu::device& on) noexcept;

}  // namespace tutti::cuda
