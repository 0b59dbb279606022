// SPDX-License-Identifier: Apache-2.0
// Kernels of a program for the stand-ins, which run on the CPU. A shared object has a function of this type
// with the name of each kernel. For the driver of Level Zero such a file is a native module. The stand-in for
// libcuda also needs the sizes of the parameters, which real images contain: `const std::size_t
// NAME_parameters[]`, ended by 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::fakes {

struct kernel_launch {
  std::uint64_t items = 0;                 // groups times their size
  const void* const* arguments = nullptr;  // pointers to the values
  std::size_t argument_count = 0;
  // The device's view of an address in an argument. If [memory, memory + bytes) is not allocated, it fails
  // the device and does not return.
  void* (*reach)(const void* device, const void* memory, std::size_t bytes) = nullptr;
  const void* device = nullptr;
};
using native_kernel = void(const kernel_launch&);

}  // namespace tutti::fakes
