// SPDX-License-Identifier: Apache-2.0
// The kernels as host functions, for emulated devices, devices without kernels, and reductions that oneCCL
// lacks; and their names in a module.
#pragma once

#include "kernels/elements.hpp"

#include <span>
#include <string_view>
#include <tutti/extend/call.hpp>
#include <tutti/reduce_op.hpp>

namespace tutti::gpu::kernels {

using tutti::extend::bytes_of;

struct kernel {
  reduce_kind kind;       // none: a conversion
  element_type from, to;  // equal in a reduction
  const char* name;       // such as "tutti_sum_float32", "tutti_scale_float32_to_float16"
  void (*on_host)(const arguments&);
};

std::span<const kernel> all_kernels() noexcept;
// These return null if there is no such kernel. There are sum, product, min, max and premul_sum (the kernel of
// sum) of numbers, avg of floating-point numbers, bitwise operations of integers; not for complex numbers and
// callables of the program.
const kernel* find_reduction(reduce_kind kind, element_type type) noexcept;
// For any two of float32, float64, float16 and bfloat16, including equal ones.
const kernel* find_conversion(element_type from, element_type to) noexcept;
const kernel* find_kernel(std::string_view name) noexcept;

// Carries it out on memory of which `reach(address, bytes)` returns the address on the host.
template <class Reach>
void run_on_host(const kernel& k, arguments a, const Reach& reach) {
  for (int i = 0; i < a.input_count; ++i) a.inputs[i] = reach(a.inputs[i], a.count * bytes_of(k.from));
  for (int i = 0; i < a.output_count; ++i) a.outputs[i] = reach(a.outputs[i], a.count * bytes_of(k.to));
  k.on_host(a);
}

}  // namespace tutti::gpu::kernels
