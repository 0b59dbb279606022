// SPDX-License-Identifier: Apache-2.0
// The compiled kernels.
#pragma once

#include <cstddef>

namespace tutti::cuda {

struct kernel_image {
  const void* data = nullptr;  // null: there are none
  std::size_t bytes = 0;
};

// Those of the file that TUTTI_CUDA_KERNELS names, otherwise those that this library was built with.
kernel_image find_kernel_image();

}  // namespace tutti::cuda
