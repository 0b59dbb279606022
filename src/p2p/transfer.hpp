// SPDX-License-Identifier: Apache-2.0
// Sends and receives as awaitable objects for coroutines inside the library (collectives). They start when
// made, are awaited once, and end when destroyed. Neither copied nor moved, because the endpoint points to
// their state.
#pragma once

#include "p2p/endpoint.hpp"

#include <coroutine>
#include <tutti/detail/flow.hpp>

namespace tutti::p2p {

template <class Transfer>
class transfer {
 public:
  template <class... Arguments>
  explicit transfer(endpoint& through, Arguments... arguments) noexcept : through_(through) {
    transfer_.on_done = [](core::completion& a) noexcept {
      auto& self = *static_cast<transfer*>(a.user);
      self.finished_ = true;
      if (self.waiting_) detail::resume_bounded(self.waiting_);
    };
    transfer_.user = this;
    finished_ = through_.start(transfer_, arguments...);
  }
  transfer(const transfer&) = delete;
  transfer& operator=(const transfer&) = delete;
  ~transfer() { through_.release(transfer_); }

  bool await_ready() const noexcept { return finished_; }
  void await_suspend(std::coroutine_handle<> h) noexcept { waiting_ = h; }
  status await_resume() {
    if (transfer_.failure() != errc::success) throw error(transfer_.failure(), transfer_.take_text());
    return transfer_.result;
  }

 private:
  endpoint& through_;
  Transfer transfer_;
  std::coroutine_handle<> waiting_;
  bool finished_ = false;
};

using sending = transfer<send>;
using receiving = transfer<receive>;

}  // namespace tutti::p2p
