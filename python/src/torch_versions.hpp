// SPDX-License-Identifier: Apache-2.0
// What PyTorch before 2.15 lacks or names otherwise. It calls none of the hooks that it lacks, and the group registers
// none.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
#include <torch/csrc/distributed/c10d/Hooks.hpp>
#else
#include <functional>

#define all_gather_single _allgather_base
#define all_gather_single_coalesced allgather_into_tensor_coalesced
#define reduce_scatter_single _reduce_scatter_base
#define reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced
#define all_to_all_single alltoall_base

namespace c10d {
using AbortHook = std::function<void()>;
}  // namespace c10d
#endif

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define TUTTI_SINCE_TORCH_2_15 override
#else
#include <cstdint>
#include <functional>
#include <optional>

#define TUTTI_SINCE_TORCH_2_15

namespace c10d {
struct CompletionHookArgs {
  std::uint64_t completionKey = 0;
  std::optional<float> duration_ms;
};
using CompletionHook = std::function<void(const CompletionHookArgs&)>;
}  // namespace c10d
#endif
