// SPDX-License-Identifier: Apache-2.0
// The conversion kernels as functions of the host: what emulated devices run, and what stands in where a
// device has no kernels.
#pragma once

#include <tutti/reduce_op.hpp>

namespace tutti::gpu::kernels {

struct convert_arguments;

// Between float32, float64, float16 and bfloat16, each of them also to itself.
bool can_convert(element_type from, element_type to) noexcept;
void convert_on_host(element_type from, element_type to, const convert_arguments& a);
// "tutti_convert_float32_to_float16": the name of the kernel in a module; null: there is none.
const char* conversion_name(element_type from, element_type to) noexcept;
// The kernel of that name; false: there is none.
bool find_conversion(const char* name, element_type& from, element_type& to) noexcept;

}  // namespace tutti::gpu::kernels
