// SPDX-License-Identifier: Apache-2.0
// The element loops for AVX-512 of servers since 2017.
#if defined(__x86_64__)
#define TUTTI_KERNELS avx512_kernels
#define TUTTI_KERNELS_NAME "AVX-512"
#define TUTTI_KERNELS_USABLE                                                   \
  (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&  \
   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && \
   __builtin_cpu_supports("f16c"))
#define TUTTI_KERNELS_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c"
#define TUTTI_VECTOR_BYTES 64
#include "coll/kernel_loops.hpp"
#endif
