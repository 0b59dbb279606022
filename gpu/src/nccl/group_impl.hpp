// SPDX-License-Identifier: Apache-2.0
// A NCCL communicator as one rank knows it: what is pending, what the other ranks say beside NCCL, and how it
// ends.
#pragma once

#include "comm/companions.hpp"
#include "comm/group.hpp"
#include "comm/submit_thread.hpp"
#include "nccl/owned_communicator.hpp"

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <string>
#include <tutti/nccl.hpp>
#include <tutti/scope.hpp>

namespace tutti::nccl {

using gpu::detail::job;
using gpu::detail::submit_operation;
using gpu::detail::submit_thread;

class group_impl final : public gpu::detail::group, gpu::detail::companions::owner {
 public:
  group_impl(std::shared_ptr<gpu::detail::attachment> on, std::shared_ptr<submit_thread> l,
             std::shared_ptr<owned_communicator> c, tutti::communicator control, std::string name);
  ~group_impl() override;

  // After construction: hears what the others say.
  void listen() { companions_.listen(); }
  std::shared_ptr<gpu::detail::work_state> start(gpu::detail::call what) override;

  const std::shared_ptr<owned_communicator>& shared_handle() const noexcept { return handle_; }
  const std::shared_ptr<submit_thread>& shared_submit_thread() const noexcept { return submit_thread_; }
  const tutti::communicator& control() const noexcept { return companions_.control(); }
  void check_usable() const;
  // Ends all that is pending; with `tell`, on the other ranks as well. `keep`: NCCL's communicator is
  // revoked, not aborted, where it can be.
  void fail_all(errc why, const std::string& text, bool tell, bool keep = false) noexcept;

 private:
  struct pending {
    std::uint64_t sequence;
    std::shared_ptr<gpu::detail::work_state> work;
    std::chrono::steady_clock::time_point deadline;
  };
  class operation_job;

  gpu::detail::companions::position where() const noexcept override { return {sequence_, last_}; }
  void peer_gone(int peer, errc why, const std::string& text) noexcept override;
  void peer_left(int peer) noexcept override;
  void peer_failed(int peer, errc why, const std::string& text, bool keep) noexcept override;
  task<> see_to_the_end(int peer, std::uint64_t last);
  task<> explain(std::uint64_t sequence, std::string what, std::chrono::milliseconds limit);
  void arm_timer() noexcept;
  void check_deadlines() noexcept;
  void forget_done() noexcept;

  std::shared_ptr<submit_thread> submit_thread_;
  std::shared_ptr<owned_communicator> handle_;
  std::shared_ptr<gpu::detail::stream_state> stream_;  // NCCL's work, enqueued by the submit thread
  std::shared_ptr<gpu::detail::stream_state> side_;    // opens gates, enqueued by the loop
  std::deque<pending> pending_;
  std::uint64_t sequence_ = 0;
  gpu::detail::operation_kind last_ = gpu::detail::operation_kind::barrier;
  errc failure_ = errc::success;
  std::string failure_text_;
  bool explaining_ = false;
  boost::asio::steady_timer timer_;
  gpu::detail::companions companions_;
  scope tasks_;
};

}  // namespace tutti::nccl
