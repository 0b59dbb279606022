// SPDX-License-Identifier: Apache-2.0
// Floats to halves and back, many at a time, by the widest instructions of this processor.
#pragma once

#include <span>
#include <tutti/half.hpp>

namespace tutti {

// Converts each element, rounding as the constructors of <tutti/half.hpp> do. The two must not overlap.
// Errors: throws errc::invalid_argument if the sizes differ.
void convert(std::span<const float> from, std::span<float16> to);
void convert(std::span<const float> from, std::span<bfloat16> to);
void convert(std::span<const float16> from, std::span<float> to);
void convert(std::span<const bfloat16> from, std::span<float> to);

}  // namespace tutti
