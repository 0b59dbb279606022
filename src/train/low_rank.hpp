// SPDX-License-Identifier: Apache-2.0
// A matrix as the product of two thin ones, in steps between which ranks average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::train {

// `m` has rows x columns elements, row by row. A thin factor is stored by its columns, one behind the other:
// `left` has rank columns of `rows` elements, `right` rank columns of `columns` elements.

// left = m * right
void multiply(std::span<const float> m, std::size_t rows, std::span<const float> right, std::size_t rank,
              std::span<float> left);
// right = transposed m * left
void multiply_transposed(std::span<const float> m, std::size_t rows, std::span<const float> left,
                         std::size_t rank, std::span<float> right);
// m = left * transposed right
void expand(std::span<const float> left, std::span<const float> right, std::size_t rank, std::size_t rows,
            std::span<float> m);
// Makes the columns orthogonal and of length 1. Columns that depend on earlier ones are replaced by random
// ones from `seed`.
void orthonormalise(std::span<float> factor, std::size_t rank, std::uint64_t seed);

}  // namespace tutti::train
