// SPDX-License-Identifier: Apache-2.0
// Reductions of the stand-ins for NCCL and oneCCL, by tutti's kernels on the host.
#pragma once

#include "kernels/host_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::fakes {

// Reduces all inputs into all outputs by the kernel, if there is one. `factors`: one for each input, or none.
inline void reduce_on_host(reduce_kind kind, element_type type, std::span<const void* const> inputs,
                           std::span<void* const> outputs, std::span<const double> factors, std::size_t count,
                           int ranks) {
  const gpu::kernels::kernel* const found = gpu::kernels::find_reduction(kind, type);
  if (found == nullptr) return;
  gpu::kernels::arguments a{};
  std::copy(inputs.begin(), inputs.end(), a.inputs);
  std::copy(outputs.begin(), outputs.end(), a.outputs);
  std::copy(factors.begin(), factors.end(), a.factors);
  a.count = count;
  a.input_count = static_cast<int>(inputs.size());
  a.output_count = static_cast<int>(outputs.size());
  a.ranks = ranks;
  a.scaled = factors.empty() ? 0 : 1;
  found->on_host(a);
}

}  // namespace tutti::fakes
