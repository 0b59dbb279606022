// SPDX-License-Identifier: Apache-2.0
// The reduction kernels as functions of the host: what emulated devices run.
#pragma once

#include <cstddef>
#include <span>
#include <tutti/reduce_op.hpp>

namespace tutti::gpu::kernels {

struct reduce_arguments;

std::size_t bytes_of(element_type type) noexcept;
// Whether there is a kernel: sum, product, min, max, avg and premul_sum of numbers, bitwise operations of
// integers; nothing of complex numbers, and no callable of the program's.
bool can_reduce(reduce_kind kind, element_type type) noexcept;
void reduce_on_host(reduce_kind kind, element_type type, std::span<const void* const> inputs,
                    std::span<void* const> outputs, std::span<const double> factors, std::size_t count,
                    int ranks);
void reduce_on_host(reduce_kind kind, element_type type, const reduce_arguments& a);
reduce_arguments arguments_of(std::span<const void* const> inputs, std::span<void* const> outputs,
                              std::span<const double> factors, std::size_t count, int ranks) noexcept;
// "tutti_sum_float32": the name of the kernel in a module. premul_sum has sum's.
const char* kernel_name(reduce_kind kind, element_type type) noexcept;
// The kernel of that name; false: there is none.
bool find_kernel(const char* name, reduce_kind& kind, element_type& type) noexcept;

}  // namespace tutti::gpu::kernels
