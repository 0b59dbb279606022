// SPDX-License-Identifier: Apache-2.0
// What the rest of the library needs of Level Zero's devices. A build without ze_api.h has it, too (absent.cpp).
#pragma once

#include "device/driver.hpp"

#include <memory>

namespace tutti::level_zero {

// As cuda::make_context: the driver of GPU `ordinal`, which has its context.
std::shared_ptr<gpu::detail::driver> make_context(int ordinal);

}  // namespace tutti::level_zero
