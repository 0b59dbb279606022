// SPDX-License-Identifier: Apache-2.0
// The kernels as host functions, for emulated devices, devices without kernels, and reductions that oneCCL
// lacks; and their names in a module.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <tutti/reduce_op.hpp>

namespace tutti::gpu::kernels {

struct reduce_arguments;
struct convert_arguments;

using tutti::detail::bytes_of;

struct reduction_kernel {
  reduce_kind kind;
  element_type type;
  const char* name;  // such as "tutti_sum_float32"
  void (*on_host)(const reduce_arguments&);
};
struct conversion_kernel {
  element_type from, to;
  const char* name;  // such as "tutti_convert_float32_to_float16"
  void (*on_host)(const convert_arguments&);
};

// These return null if there is no such kernel. There are sum, product, min, max and premul_sum (the kernel of
// sum) of numbers, avg of floating-point numbers, bitwise operations of integers; not for complex numbers and
// callables of the program.
const reduction_kernel* find_reduction(reduce_kind kind, element_type type) noexcept;
const reduction_kernel* find_reduction(std::string_view name) noexcept;
// For any two of float32, float64, float16 and bfloat16, including equal ones.
const conversion_kernel* find_conversion(element_type from, element_type to) noexcept;
const conversion_kernel* find_conversion(std::string_view name) noexcept;

// Reduces by the kernel, if there is one.
void reduce_on_host(reduce_kind kind, element_type type, std::span<const void* const> inputs,
                    std::span<void* const> outputs, std::span<const double> factors, std::size_t count,
                    int ranks);

}  // namespace tutti::gpu::kernels
