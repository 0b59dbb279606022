// SPDX-License-Identifier: Apache-2.0
// CUDA kernels: reductions of N inputs to M outputs in one launch, and conversions. They move 16 bytes at a
// time if everything is aligned.
#include "kernels/elements.hpp"

namespace tutti::gpu::kernels {
namespace {

// Has all threads move `count` elements, in packs of `Width` if all addresses, whose bits are in `addresses`, are
// aligned.
template <int Width, class Packs, class Elements>
__device__ void for_all(std::uint64_t count, std::uint64_t addresses, Packs move_pack, Elements move_element) {
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  const std::uint64_t packs = addresses % 16 == 0 ? count / Width : 0;
  for (std::uint64_t i = first; i < packs; i += stride) move_pack(i);
  for (std::uint64_t i = packs * Width + first; i < count; i += stride) move_element(i);
}

template <class T, class Op, bool Average>
__device__ void reduce_all(const reduce_arguments& a) {
  constexpr int width = 16 / sizeof(T);
  std::uint64_t addresses = 0;
  for (int k = 0; k < a.input_count; ++k) addresses |= reinterpret_cast<std::uint64_t>(a.inputs[k]);
  for (int k = 0; k < a.output_count; ++k) addresses |= reinterpret_cast<std::uint64_t>(a.outputs[k]);
  for_all<width>(
      a.count, addresses, [&a](std::uint64_t i) { reduce_pack<T, Op, Average, width>(a, i); },
      [&a](std::uint64_t i) { reduce_pack<T, Op, Average>(a, i); });
}

template <class From, class To>
__device__ void convert_all(const convert_arguments& a) {
  constexpr int width = 16 / (sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
  for_all<width>(
      a.count, reinterpret_cast<std::uint64_t>(a.input) | reinterpret_cast<std::uint64_t>(a.output),
      [&a](std::uint64_t i) { convert_pack<From, To, width>(a, i); },
      [&a](std::uint64_t i) { convert_pack<From, To>(a, i); });
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
