// SPDX-License-Identifier: Apache-2.0
// The connection of one rank to NCCL.
#pragma once

#include "comm/submit_thread.hpp"
#include "comm/vendor.hpp"
#include "nccl/owned_communicator.hpp"

#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace tutti::nccl {

// The device's submit thread calls NCCL in the order in which operations started; the loop never does.
// Operations run on a stream of the connection.
class connection final : public gpu::detail::vendor, public std::enable_shared_from_this<connection> {
 public:
  connection(std::shared_ptr<gpu::detail::attachment> on, std::shared_ptr<gpu::detail::submit_thread> thread,
             const abi::table& calls, abi::communicator* handle, int rank, int size);
  ~connection() override;

  task<> perform(gpu::detail::work_state* w, gpu::detail::device_group::turn* mine) override;
  const std::shared_ptr<owned_communicator>& handle() const noexcept { return handle_; }
  const std::shared_ptr<gpu::detail::submit_thread>& thread() const noexcept { return thread_; }

 private:
  class operation_job;
  // Fails all pending operations, and ends NCCL's communicator.
  void end(errc why, const std::string& text) noexcept;
  void forget_done() noexcept;

  const std::shared_ptr<gpu::detail::attachment> on_;
  const std::shared_ptr<gpu::detail::submit_thread> thread_;
  const std::shared_ptr<owned_communicator> handle_;
  const int rank_, size_;
  const std::shared_ptr<gpu::detail::stream_state> stream_;  // NCCL's work, enqueued by the submit thread
  const std::shared_ptr<gpu::detail::stream_state> side_;    // opens gates, enqueued by the loop
  gpu::detail::recycled_deque<std::shared_ptr<gpu::detail::work_state>> pending_;
  std::string ended_;  // the reason; empty while connected
};

// Connects the ranks of `control` by NCCL. Collective.
task<std::shared_ptr<gpu::detail::vendor>> connect(tutti::communicator control, gpu::device on);

// Why NCCL cannot serve a call; empty if it can. The same on all ranks.
std::string_view why_not_by_nccl(const gpu::detail::call& c) noexcept;

}  // namespace tutti::nccl
