// SPDX-License-Identifier: Apache-2.0
// held_message: a message that a matched probe has taken, until recv starts or its last holder drops it.
#pragma once

#include "comm/communicator_state.hpp"
#include "p2p/endpoint.hpp"

#include <string>
#include <tutti/detail/operation_state.hpp>
#include <utility>

namespace tutti::ops {

class held_message final : public detail::call_part {
 public:
  explicit held_message(detail::communicator_ref of) noexcept : call_part(false), of_(std::move(of)) {}
  ~held_message() override {
    if (message_ != nullptr && !of_->detached()) of_->endpoint().put_back(*message_);
  }
  std::string bad_argument(const detail::call&) const override {
    if (message_ != nullptr) return {};
    return "this message has been received already: each matched_probe gives one message, for one recv";
  }

  void hold(p2p::unexpected& message) noexcept { message_ = &message; }
  p2p::unexpected& take() noexcept { return *std::exchange(message_, nullptr); }

 private:
  const detail::communicator_ref of_;
  p2p::unexpected* message_ = nullptr;
};

// The one of a matched probe that was started, or of a receive of its message; nullptr: the call is another.
inline held_message* held_by(const detail::call& what) noexcept {
  return dynamic_cast<held_message*>(what.part.get());
}

}  // namespace tutti::ops
