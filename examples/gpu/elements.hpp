// SPDX-License-Identifier: Apache-2.0
// The kernels of the GPU examples for one element: the emulated device loops over them, CUDA runs one thread
// for each.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define EXAMPLE_BOTH __host__ __device__
#else
#define EXAMPLE_BOTH
#endif

namespace gpu_examples {

// Arguments of every kernel, passed by value.
struct arguments {
  float* memory[6] = {};         // on the device
  std::uint64_t length[6] = {};  // in elements
  int number[4] = {};
  float factor[3] = {};
  std::uint64_t count = 0;  // number of elements to compute
};

// memory[0][i] += ..., with the amount of work in number[0].
EXAMPLE_BOTH inline void busy(const arguments& a, std::uint64_t i) {
  float x = a.memory[0][i];
  for (int k = 0; k < a.number[0]; ++k) x = x * 0.999f + 0.001f;
  a.memory[0][i] = x;
}

// memory[0] += memory[1]
EXAMPLE_BOTH inline void add(const arguments& a, std::uint64_t i) { a.memory[0][i] += a.memory[1][i]; }

// C (rows x columns) = A * B, all row-major; number: rows, columns, inner, and the transposed matrix: A (1),
// B (2) or none (0).
EXAMPLE_BOTH inline void multiply(const arguments& a, std::uint64_t i) {
  const int columns = a.number[1], inner = a.number[2], rows = a.number[0];
  const int row = static_cast<int>(i) / columns, column = static_cast<int>(i) % columns;
  float sum = 0;
  for (int k = 0; k < inner; ++k) {
    const float x = a.number[3] == 1 ? a.memory[1][k * rows + row] : a.memory[1][row * inner + k];
    const float y = a.number[3] == 2 ? a.memory[2][column * inner + k] : a.memory[2][k * columns + column];
    sum += x * y;
  }
  a.memory[0][i] = sum;
}

// Adds the bias of the row (memory[1]) to memory[0]. If number[1] is not 0, replaces negative results by 0;
// number[0]: columns.
EXAMPLE_BOTH inline void bias_relu(const arguments& a, std::uint64_t i) {
  const float x = a.memory[0][i] + a.memory[1][i / static_cast<std::uint64_t>(a.number[0])];
  a.memory[0][i] = a.number[1] != 0 && x < 0 ? 0 : x;
}

#if defined(__CUDACC__)
#define EXAMPLE_EXP expf
#define EXAMPLE_LOG logf
#else
float exponential(float x) noexcept;
float logarithm(float x) noexcept;
#define EXAMPLE_EXP ::gpu_examples::exponential
#define EXAMPLE_LOG ::gpu_examples::logarithm
#endif

// Replaces column i of the outputs memory[0] (number[0] rows, number[1] columns) by the derivative of its
// loss, times factor[0]. Writes the loss to memory[2]. memory[1]: the labels.
EXAMPLE_BOTH inline void softmax_loss(const arguments& a, std::uint64_t i) {
  const int rows = a.number[0], columns = a.number[1];
  const int column = static_cast<int>(i), label = static_cast<int>(a.memory[1][i]);
  float most = a.memory[0][column], sum = 0;
  for (int r = 1; r < rows; ++r)
    most = a.memory[0][r * columns + column] > most ? a.memory[0][r * columns + column] : most;
  for (int r = 0; r < rows; ++r) sum += EXAMPLE_EXP(a.memory[0][r * columns + column] - most);
  a.memory[2][i] = EXAMPLE_LOG(sum) + most - a.memory[0][label * columns + column];
  for (int r = 0; r < rows; ++r) {
    const float p = EXAMPLE_EXP(a.memory[0][r * columns + column] - most) / sum;
    a.memory[0][r * columns + column] = (p - (r == label ? 1.0f : 0.0f)) * a.factor[0];
  }
}

// memory[0]: the sums of the rows of memory[1]; number[0]: columns.
EXAMPLE_BOTH inline void row_sums(const arguments& a, std::uint64_t i) {
  float sum = 0;
  for (int c = 0; c < a.number[0]; ++c)
    sum += a.memory[1][i * static_cast<std::uint64_t>(a.number[0]) + static_cast<std::uint64_t>(c)];
  a.memory[0][i] = sum;
}

// Sets memory[0] to 0 where memory[1], the output of the layer, is 0.
EXAMPLE_BOTH inline void relu_backward(const arguments& a, std::uint64_t i) {
  if (a.memory[1][i] <= 0) a.memory[0][i] = 0;
}

// velocity (memory[2]) = factor[1] * velocity + gradient (memory[1]); memory[0] -= factor[0] * velocity
EXAMPLE_BOTH inline void step(const arguments& a, std::uint64_t i) {
  a.memory[2][i] = a.factor[1] * a.memory[2][i] + a.memory[1][i];
  a.memory[0][i] -= a.factor[0] * a.memory[2][i];
}

// X(name)
#define GPU_EXAMPLE_KERNELS(X) \
  X(busy) X(add) X(multiply) X(bias_relu) X(softmax_loss) X(row_sums) X(relu_backward) X(step)

}  // namespace gpu_examples
