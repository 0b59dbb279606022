// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/vendor.hpp"

#include <memory>
#include <string_view>
#include <tutti/communicator.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/gpu/sycl_queue.hpp>
#include <tutti/task.hpp>

namespace tutti::oneccl {

// Connects the ranks of `control` by oneCCL. Collective.
task<std::shared_ptr<gpu::detail::vendor>> connect(tutti::communicator control, gpu::device on,
                                                   sycl_queue queue);

// Why oneCCL cannot serve a call; empty if it can.
std::string_view why_not_by_oneccl(const gpu::detail::call& c, bool by_queue) noexcept;

}  // namespace tutti::oneccl
