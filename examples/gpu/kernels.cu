// SPDX-License-Identifier: Apache-2.0
// The examples' kernels for CUDA: one thread for one or more elements.
#include "gpu/elements.hpp"

#define GPU_EXAMPLE_KERNEL(name)                                                                        \
  extern "C" __global__ void example_##name(gpu_examples::arguments a) {                                \
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;          \
    for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; \
         i < a.count; i += stride)                                                                      \
      gpu_examples::name(a, i);                                                                         \
  }
GPU_EXAMPLE_KERNELS(GPU_EXAMPLE_KERNEL)
