// SPDX-License-Identifier: Apache-2.0
// The conversion kernels as host functions, for emulated devices and for devices without kernels.
#pragma once

#include <tutti/reduce_op.hpp>

namespace tutti::gpu::kernels {

struct convert_arguments;

// For any two of float32, float64, float16 and bfloat16, including equal ones.
bool can_convert(element_type from, element_type to) noexcept;
void convert_on_host(element_type from, element_type to, const convert_arguments& a);
// The kernel's name in a module, such as "tutti_convert_float32_to_float16"; null if there is none.
const char* conversion_name(element_type from, element_type to) noexcept;
// Finds the kernel of that name. Returns false if there is none.
bool find_conversion(const char* name, element_type& from, element_type& to) noexcept;

}  // namespace tutti::gpu::kernels
