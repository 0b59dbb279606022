// SPDX-License-Identifier: Apache-2.0
// What a native module is to the driver for Level Zero that runs on the CPU: a shared object, whose kernels
// are functions with the name of the kernel, of this type.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::fakes {

struct kernel_launch {
  std::uint64_t items = 0;                 // groups times their size
  const void* const* arguments = nullptr;  // each as it was set
  std::size_t argument_count = 0;
  // What the device has at an address that an argument holds. It fails the device, and does not return, where
  // [memory, memory + bytes) is not allocated.
  void* (*reach)(const void* device, const void* memory, std::size_t bytes) = nullptr;
  const void* device = nullptr;
};
using native_kernel = void(const kernel_launch&);

}  // namespace tutti::fakes
