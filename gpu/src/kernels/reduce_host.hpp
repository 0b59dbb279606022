// SPDX-License-Identifier: Apache-2.0
// The reduction kernels as host functions, for emulated devices and for reductions that oneCCL lacks.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::gpu::kernels {

struct reduce_arguments;

using tutti::detail::bytes_of;

// Whether there is a kernel: sum, product, min, max and premul_sum of numbers, avg of floating-point numbers,
// bitwise operations of integers. Complex numbers and callables of the program have none.
bool can_reduce(reduce_kind kind, element_type type) noexcept;
void reduce_on_host(reduce_kind kind, element_type type, std::span<const void* const> inputs,
                    std::span<void* const> outputs, std::span<const double> factors, std::size_t count,
                    int ranks);
void reduce_on_host(reduce_kind kind, element_type type, const reduce_arguments& a);
reduce_arguments arguments_of(std::span<const void* const> inputs, std::span<void* const> outputs,
                              std::span<const double> factors, std::size_t count, int ranks) noexcept;
// The kernel's name in a module, such as "tutti_sum_float32". premul_sum uses the kernel of sum.
const char* kernel_name(reduce_kind kind, element_type type) noexcept;
// Finds the kernel of that name. Returns false if there is none.
bool find_kernel(const char* name, reduce_kind& kind, element_type& type) noexcept;

}  // namespace tutti::gpu::kernels
