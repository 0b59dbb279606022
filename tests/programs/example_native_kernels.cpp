// SPDX-License-Identifier: Apache-2.0
// The kernels of the GPU examples for the emulated libcuda and the Level Zero driver on the CPU.
#include "gpu/elements.hpp"
#include "native_kernel.hpp"

#include <cmath>
#include <cstring>

namespace gpu_examples {

float exponential(float x) noexcept { return std::exp(x); }
float logarithm(float x) noexcept { return std::log(x); }

namespace {

using element_kernel = void (*)(const arguments&, std::uint64_t);

void run(element_kernel element, const tutti::fakes::kernel_launch& how) {
  arguments seen;
  std::memcpy(&seen, how.arguments[0], sizeof seen);
  for (int k = 0; k < 6; ++k)
    if (seen.length[k] > 0)
      seen.memory[k] = static_cast<float*>(
          how.reach(how.device, seen.memory[k], static_cast<std::size_t>(seen.length[k]) * sizeof(float)));
  for (std::uint64_t i = 0; i < seen.count; ++i) element(seen, i);
}

}  // namespace
}  // namespace gpu_examples

#define EXAMPLE_ENTRY(name)                                                                                \
  extern "C"                                                                                               \
      __attribute__((visibility("default"))) void example_##name(const tutti::fakes::kernel_launch& how) { \
    gpu_examples::run(&gpu_examples::name, how);                                                           \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default")))                                                        \
  const std::size_t example_##name##_parameters[] = {sizeof(gpu_examples::arguments), 0};
GPU_EXAMPLE_KERNELS(EXAMPLE_ENTRY)
