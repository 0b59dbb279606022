// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/vendor.hpp"

#include <memory>
#include <string_view>
#include <tutti/communicator.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/task.hpp>

namespace tutti::nccl {

// Connects the ranks of `control` by NCCL. Collective.
task<std::shared_ptr<gpu::detail::vendor>> connect(tutti::communicator control, gpu::device on);

// Why NCCL cannot serve a call; empty if it can. The same on all ranks.
std::string_view why_not_by_nccl(const gpu::detail::call& c) noexcept;

}  // namespace tutti::nccl
