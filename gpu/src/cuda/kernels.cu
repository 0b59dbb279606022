// SPDX-License-Identifier: Apache-2.0
// CUDA kernels: reductions of N inputs to M outputs in one launch, and conversions. They move 16 bytes at a
// time if everything is aligned.
#include "kernels/elements.hpp"

namespace tutti::gpu::kernels {
namespace {

template <class T, int N = 16 / sizeof(T)>
struct alignas(16) pack {
  T e[N];
};

template <class T, class Op, bool Average>
__device__ void reduce_all(const reduce_arguments& a) {
  using A = accumulator_t<T>;
  constexpr int width = 16 / sizeof(T);
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;

  std::uint64_t bits = 0;
  for (int k = 0; k < a.input_count; ++k) bits |= reinterpret_cast<std::uint64_t>(a.inputs[k]);
  for (int k = 0; k < a.output_count; ++k) bits |= reinterpret_cast<std::uint64_t>(a.outputs[k]);
  const std::uint64_t packs = bits % 16 == 0 ? a.count / width : 0;

  for (std::uint64_t i = first; i < packs; i += stride) {
    A all[width];
    for (int k = 0; k < a.input_count; ++k) {
      const pack<T> in = static_cast<const pack<T>*>(a.inputs[k])[i];
      const A factor = static_cast<A>(a.factors[k]);
#pragma unroll
      for (int e = 0; e < width; ++e) {
        A x = static_cast<A>(in.e[e]);
        if (a.scaled != 0) x = multiply::apply(x, factor);
        all[e] = k == 0 ? x : Op::apply(all[e], x);
      }
    }
    pack<T> out;
#pragma unroll
    for (int e = 0; e < width; ++e) {
      if constexpr (Average) all[e] = all[e] / static_cast<A>(a.ranks);
      out.e[e] = static_cast<T>(canonical(all[e]));
    }
    for (int k = 0; k < a.output_count; ++k) static_cast<pack<T>*>(a.outputs[k])[i] = out;
  }
  for (std::uint64_t i = packs * width + first; i < a.count; i += stride) reduce_element<T, Op, Average>(a, i);
}

template <class From, class To>
__device__ void convert_all(const convert_arguments& a) {
  using A = product_t<From, To>;
  constexpr int width = 16 / (sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  const std::uint64_t bits =
      reinterpret_cast<std::uint64_t>(a.input) | reinterpret_cast<std::uint64_t>(a.output);
  const std::uint64_t packs = bits % 16 == 0 ? a.count / width : 0;
  const A factor = static_cast<A>(a.factor);

  for (std::uint64_t i = first; i < packs; i += stride) {
    const pack<From, width> in = static_cast<const pack<From, width>*>(a.input)[i];
    pack<To, width> out;
#pragma unroll
    for (int e = 0; e < width; ++e) out.e[e] = convert_value<To>(in.e[e], factor);
    static_cast<pack<To, width>*>(a.output)[i] = out;
  }
  for (std::uint64_t i = packs * width + first; i < a.count; i += stride) convert_element<From, To>(a, i);
}

}  // namespace
}  // namespace tutti::gpu::kernels

// Compiled with --fmad=false: contracting a multiplication with an addition would change the result.
#define TUTTI_KERNEL(kind, op, type, T, average)                                                                      \
  extern "C" __global__ void tutti_##kind##_##type(const __grid_constant__ tutti::gpu::kernels::reduce_arguments a) { \
    tutti::gpu::kernels::reduce_all<T, tutti::gpu::kernels::op, average>(a);                                          \
  }
TUTTI_KERNELS(TUTTI_KERNEL)

#define TUTTI_CONVERSION(from, From, to, To)                              \
  extern "C" __global__ void tutti_convert_##from##_to_##to(              \
      const __grid_constant__ tutti::gpu::kernels::convert_arguments a) { \
    tutti::gpu::kernels::convert_all<From, To>(a);                        \
  }
TUTTI_CONVERSIONS(TUTTI_CONVERSION)
