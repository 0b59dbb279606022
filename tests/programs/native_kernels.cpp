// SPDX-License-Identifier: Apache-2.0
// Kernels in the form of the Level Zero driver that runs on the CPU.
#include "native_kernel.hpp"

#include <cstring>

using tutti::fakes::kernel_launch;

// (int* data, int n, int what): data[i] = data[i] * 3 + what
extern "C" __attribute__((visibility("default"))) void triple_and_add(const kernel_launch& how) {
  int* data = nullptr;
  int n = 0, what = 0;
  std::memcpy(&data, how.arguments[0], sizeof data);
  std::memcpy(&n, how.arguments[1], sizeof n);
  std::memcpy(&what, how.arguments[2], sizeof what);
  int* const at = static_cast<int*>(how.reach(how.device, data, static_cast<std::size_t>(n) * sizeof(int)));
  for (std::uint64_t i = 0; i < how.items && i < static_cast<std::uint64_t>(n); ++i) at[i] = at[i] * 3 + what;
}
