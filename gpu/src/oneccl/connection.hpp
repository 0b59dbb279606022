// SPDX-License-Identifier: Apache-2.0
// The connection of one rank to oneCCL. An operation copies its input to the host, has the connection's
// thread call oneCCL, and copies the result to the device. Memory that oneCCL can use in place is not copied.
#pragma once

#include "comm/mark.hpp"
#include "comm/submit_thread.hpp"
#include "comm/vendor.hpp"
#include "oneccl/oneccl_api.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <tutti/gpu/sycl_queue.hpp>

namespace tutti::oneccl {

// What the submit thread and the loop share.
struct core {
  const abi::table& calls;
  abi::communicator* const handle;
  const sycl_queue queue;
};

// oneCCL's calls block, and those of one communicator must come from one thread. So the connection has a
// thread, which makes them in the order in which operations started; the loop never does.
class connection final : public gpu::detail::vendor {
 public:
  connection(std::shared_ptr<gpu::detail::attachment> on, std::shared_ptr<gpu::detail::submit_thread> thread,
             std::shared_ptr<core> c, int rank, int size);
  ~connection() override;

  task<> perform(gpu::detail::work_state* w, gpu::detail::device_group::turn* mine) override;

 private:
  bool is_direct(const gpu::detail::view& v) const noexcept;

  const std::shared_ptr<gpu::detail::attachment> on_;
  const std::shared_ptr<gpu::detail::submit_thread> thread_;
  const std::shared_ptr<core> core_;
  const int rank_, size_;
  const std::shared_ptr<gpu::detail::pinned_pool> staging_;
  const std::shared_ptr<gpu::detail::stream_state> out_;  // device to host; `in_` is the way back
  const std::shared_ptr<gpu::detail::stream_state> in_;
  bool ended_ = false;
};

// Connects the ranks of `control` by oneCCL. Collective.
task<std::shared_ptr<gpu::detail::vendor>> connect(tutti::communicator control, gpu::device on,
                                                   sycl_queue queue);

// Why oneCCL cannot serve a call; empty if it can.
std::string_view why_not_by_oneccl(const gpu::detail::call& c, bool by_queue) noexcept;

}  // namespace tutti::oneccl
