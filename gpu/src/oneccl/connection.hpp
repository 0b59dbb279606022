// SPDX-License-Identifier: Apache-2.0
// A oneCCL communicator as one rank uses it. An operation brings its input to the host (or waits until it is
// there), has the connection's thread call oneCCL, and takes the result to the device.
#pragma once

#include "comm/mark.hpp"
#include "comm/staging.hpp"
#include "comm/submit_thread.hpp"
#include "comm/vendor.hpp"
#include "oneccl/oneccl_api.hpp"

#include <memory>
#include <string>
#include <tutti/gpu/sycl_queue.hpp>

namespace tutti::oneccl {

// What submit thread and loop share of it.
struct core {
  const abi::table& calls;
  abi::communicator* const handle;
  const sycl_queue queue;
};

// Calls of oneCCL block, and it wants all of a communicator's from one thread: the connection has a thread, which
// makes them in the order in which operations were started; the loop never is in oneCCL.
class connection final : public gpu::detail::vendor {
 public:
  connection(std::shared_ptr<gpu::detail::attachment> on, std::shared_ptr<gpu::detail::submit_thread> thread,
             std::shared_ptr<core> c, int rank, int size);
  ~connection() override;

  task<> perform(gpu::detail::work_state* w, gpu::detail::device_group::turn* mine) override;

 private:
  class unfinished;
  bool is_direct(const gpu::detail::view& v) const noexcept;

  const std::shared_ptr<gpu::detail::attachment> on_;
  const std::shared_ptr<gpu::detail::submit_thread> thread_;
  const std::shared_ptr<core> core_;
  const int rank_, size_;
  std::shared_ptr<gpu::detail::staging> staging_;
  std::shared_ptr<gpu::detail::stream_state> out_;  // of the device
  std::shared_ptr<gpu::detail::stream_state> in_;
  bool ended_ = false;
};

}  // namespace tutti::oneccl
