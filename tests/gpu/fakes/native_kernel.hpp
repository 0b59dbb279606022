// SPDX-License-Identifier: Apache-2.0
// Kernels of a program's own for the stand-ins that run on the CPU: a shared object has functions with the
// names of the kernels, of this type. To the driver for Level Zero such a file is a native module; the
// stand-in for libcuda also wants the sizes of a kernel's parameters, which real ones have in the image:
// `const std::size_t NAME_parameters[]`, ended by 0.
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
