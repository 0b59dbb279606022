// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/group.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <tutti/communicator.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/task.hpp>

namespace tutti::nccl {

// A NCCL communicator of the ranks of `control`, which it uses alone from then on. Collective.
task<std::shared_ptr<gpu::detail::group>> connect(tutti::communicator control, gpu::device on,
                                                  std::string of);

// Why NCCL cannot serve a call, the same on all ranks, or empty.
std::string_view why_not_by_nccl(const gpu::detail::call& c) noexcept;

}  // namespace tutti::nccl
