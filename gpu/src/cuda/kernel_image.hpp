// SPDX-License-Identifier: Apache-2.0
// The compiled kernels.
#pragma once

#include <cstddef>

namespace tutti::cuda {

struct kernel_image {
  const void* data = nullptr;  // null: none
  std::size_t bytes = 0;
};

// The file that TUTTI_CUDA_KERNELS names, or the kernels that are built into this library.
kernel_image find_kernel_image();

}  // namespace tutti::cuda
