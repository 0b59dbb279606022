// SPDX-License-Identifier: Apache-2.0
// The element loops for any processor: 16-byte vectors, which the compiler expands where there are none.
#define TUTTI_KERNELS baseline_kernels
#define TUTTI_KERNELS_NAME "baseline"
#define TUTTI_KERNELS_USABLE true
#define TUTTI_VECTOR_BYTES 16
#include "coll/kernel_loops.hpp"
