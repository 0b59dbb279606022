// SPDX-License-Identifier: Apache-2.0
// CUDA kernels: reductions of N inputs to M outputs in one launch, and conversions. They move 16 bytes at a
// time if everything is aligned.
#include "kernels/elements.hpp"

namespace tutti::gpu::kernels {
namespace {

// All threads move the elements, in packs if all addresses are aligned.
template <class From, class To, class Op, bool Average>
__device__ void reduce_all(const arguments& a) {
  constexpr int width = 16 / (sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
  std::uint64_t addresses = 0;
  for (int k = 0; k < a.input_count; ++k) addresses |= reinterpret_cast<std::uint64_t>(a.inputs[k]);
  for (int k = 0; k < a.output_count; ++k) addresses |= reinterpret_cast<std::uint64_t>(a.outputs[k]);
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  const std::uint64_t packs = addresses % 16 == 0 ? a.count / width : 0;
  for (std::uint64_t i = first; i < packs; i += stride) reduce_pack<From, To, Op, Average, width>(a, i);
  for (std::uint64_t i = packs * width + first; i < a.count; i += stride)
    reduce_pack<From, To, Op, Average>(a, i);
}

}  // namespace
}  // namespace tutti::gpu::kernels

// Compiled with --fmad=false: contracting a multiplication with an addition would change the result.
#define TUTTI_KERNEL(kind, op, type, T, average)                                                               \
  extern "C" __global__ void tutti_##kind##_##type(const __grid_constant__ tutti::gpu::kernels::arguments a) { \
    tutti::gpu::kernels::reduce_all<T, T, tutti::gpu::kernels::op, average>(a);                                \
  }
TUTTI_KERNELS(TUTTI_KERNEL)

#define TUTTI_CONVERSION(from, From, to, To)                                       \
  extern "C" __global__ void tutti_scale_##from##_to_##to(                       \
      const __grid_constant__ tutti::gpu::kernels::arguments a) {                  \
    tutti::gpu::kernels::reduce_all<From, To, tutti::gpu::kernels::add, false>(a); \
  }
TUTTI_CONVERSIONS(TUTTI_CONVERSION)
