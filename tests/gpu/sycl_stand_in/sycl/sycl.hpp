// SPDX-License-Identifier: Apache-2.0
// The names that tutti/sycl.hpp uses of SYCL, for machines without it: a queue of which all copies are one,
// and which can be seen to be waited for, to fail, and to go.
#pragma once

#include <atomic>
#include <exception>
#include <memory>

namespace sycl {

class exception : public std::exception {
 public:
  const char* what() const noexcept override { return "the queue has failed, as the test wanted"; }
};

class queue {
 public:
  struct state {
    std::atomic<int> waits{0};
    std::atomic<bool> fails{false};
  };
  void wait_and_throw() const {
    ++state_->waits;
    if (state_->fails) throw exception();
  }
  void fail() { state_->fails = true; }
  std::weak_ptr<state> watched() const { return state_; }

 private:
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

}  // namespace sycl
