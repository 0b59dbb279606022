// SPDX-License-Identifier: Apache-2.0
// The element loops for AVX2 with conversions of float16 (F16C).
#if defined(__x86_64__)
#define TUTTI_KERNELS avx2_kernels
#define TUTTI_KERNELS_NAME "AVX2"
#define TUTTI_KERNELS_USABLE (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
#define TUTTI_KERNELS_TARGET "avx2,f16c"
#define TUTTI_VECTOR_BYTES 32
#include "coll/kernel_loops.hpp"
#endif
