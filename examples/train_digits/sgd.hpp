// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent with momentum, as torch.optim.SGD defines it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace train_digits {

// velocity = momentum * velocity + gradient; parameters -= rate * velocity.
// Works element by element in one order, so that equal replicas with equal gradients stay equal bit for bit.
class sgd {
 public:
  sgd(std::size_t parameters, float rate, float momentum)
      : rate_(rate), momentum_(momentum), velocity_(parameters) {}

  void step(std::span<float> parameters, std::span<const float> gradient) noexcept {
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = momentum_ * velocity_[i] + gradient[i];
      parameters[i] -= rate_ * velocity_[i];
    }
  }
  // The state that the next step needs; belongs into checkpoints.
  std::span<float> velocity() noexcept { return velocity_; }

 private:
  float rate_, momentum_;
  std::vector<float> velocity_;
};

}  // namespace train_digits
