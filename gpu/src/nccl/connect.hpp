// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/vendor.hpp"

#include <memory>
#include <string_view>
#include <tutti/communicator.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/task.hpp>

namespace tutti::nccl {

// Of the ranks of `control`. Collective.
task<std::shared_ptr<gpu::detail::vendor>> connect(tutti::communicator control, gpu::device on);

// Why NCCL cannot serve a call, the same on all ranks, or empty.
std::string_view why_not_by_nccl(const gpu::detail::call& c) noexcept;

}  // namespace tutti::nccl
