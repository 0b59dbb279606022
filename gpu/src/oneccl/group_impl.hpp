// SPDX-License-Identifier: Apache-2.0
// A oneCCL communicator as one rank knows it. An operation brings its input to the host (or waits until it is
// there), has the communicator's thread call oneCCL, and takes the result to the device.
#pragma once

#include "comm/companions.hpp"
#include "comm/group.hpp"
#include "comm/staging.hpp"
#include "comm/submit_thread.hpp"
#include "oneccl/oneccl_api.hpp"

#include <deque>
#include <memory>
#include <string>
#include <tutti/oneccl.hpp>

namespace tutti::oneccl {

// What submit thread and loop share of it.
struct core {
  const abi::table& calls;
  abi::communicator* const handle;
  const sycl_queue queue;
};

class group_impl final : public gpu::detail::group, gpu::detail::companions::owner {
 public:
  group_impl(std::shared_ptr<gpu::detail::attachment> on, std::shared_ptr<gpu::detail::submit_thread> l,
             std::shared_ptr<core> c, tutti::communicator control, std::string name);
  ~group_impl() override;

  void listen() { companions_.listen(); }  // after construction
  std::shared_ptr<gpu::detail::work_state> start(gpu::detail::call what) override;

  const std::shared_ptr<core>& shared_core() const noexcept { return core_; }
  const std::shared_ptr<gpu::detail::submit_thread>& shared_submit_thread() const noexcept {
    return submit_thread_;
  }
  const tutti::communicator& control() const noexcept { return companions_.control(); }
  void check_usable() const;

 private:
  struct pending {
    std::uint64_t sequence;
    std::shared_ptr<gpu::detail::work_state> work;
  };
  bool is_direct(const gpu::detail::view& v) const noexcept;
  task<> run(running* r, std::uint64_t sequence, std::shared_ptr<void> ready);
  task<> carry_out(gpu::detail::work_state* w, void* ready);
  // Ends all that is pending; with `tell`, on the other ranks as well.
  void fail_all(errc why, const std::string& text, bool tell) noexcept;
  gpu::detail::companions::position where() const noexcept override { return {sequence_, last_}; }
  void peer_gone(int peer, errc why, const std::string& text) noexcept override;
  void peer_left(int peer) noexcept override;
  void peer_failed(int peer, errc why, const std::string& text, bool keep) noexcept override;
  task<> see_to_the_end(int peer, std::uint64_t last);
  void forget_done() noexcept;

  std::shared_ptr<gpu::detail::submit_thread>
      submit_thread_;  // oneCCL wants all calls of a communicator from one thread
  std::shared_ptr<core> core_;
  std::shared_ptr<gpu::detail::staging> staging_;
  std::shared_ptr<gpu::detail::stream_state> out_;  // of the device
  std::shared_ptr<gpu::detail::stream_state> in_;
  std::deque<pending> pending_;
  std::uint64_t sequence_ = 0;
  gpu::detail::operation_kind last_ = gpu::detail::operation_kind::barrier;
  errc failure_ = errc::success;
  std::string failure_text_;
  gpu::detail::companions companions_;
  scope tasks_;
};

}  // namespace tutti::oneccl
