// SPDX-License-Identifier: Apache-2.0
// The names of SYCL that tutti/sycl.hpp uses, for machines without SYCL: a queue whose copies share one
// state. Tests see its waits and its end, and make it fail.
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
