// SPDX-License-Identifier: Apache-2.0
// A multi-layer perceptron: ReLU between layers, softmax cross-entropy at the end.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace train_digits {

// One array holds all parameters and another all gradients, so that one all_reduce covers the network. Scalar
// is float; the tests use double to compare gradients with finite differences.
template <class Scalar>
class perceptron {
 public:
  using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

  // `sizes`: inputs, hidden layers, classes. He initialisation, identical for one seed on every machine.
  perceptron(const std::vector<int>& sizes, std::uint64_t seed);

  std::span<Scalar> parameters() noexcept { return parameters_; }
  std::span<Scalar> gradient() noexcept { return gradient_; }

  // Sets gradient() to `weight` times the sum of the derivatives of the samples' losses, and returns the
  // unweighted sum of the losses. `images` has one column per label; without columns the gradient is zero.
  // With weight 1 / (samples of all ranks), the gradients of all ranks sum to the mean over all samples,
  // however uneven their shares.
  double backward(const matrix& images, std::span<const std::uint8_t> labels, Scalar weight);

  // The number of images whose class equals their label.
  std::size_t count_correct(const matrix& images, std::span<const std::uint8_t> labels);

 private:
  struct layer {
    Eigen::Index inputs, outputs;
    std::size_t weights, biases;  // offsets in parameters_ and gradient_
    matrix output, delta;  // of the last batch, a column per sample; delta is d(loss)/d(output before ReLU)
  };
  using weight_map = Eigen::Map<matrix>;
  using bias_map = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, 1>>;

  weight_map weights_in(std::vector<Scalar>& flat, const layer& l) {
    return weight_map(flat.data() + l.weights, l.outputs, l.inputs);
  }
  bias_map biases_in(std::vector<Scalar>& flat, const layer& l) {
    return bias_map(flat.data() + l.biases, l.outputs);
  }

  void forward(const matrix& images);
  double softmax_loss(std::span<const std::uint8_t> labels, Scalar weight);

  std::vector<layer> layers_;
  std::vector<Scalar> parameters_, gradient_;
};

extern template class perceptron<float>;
extern template class perceptron<double>;

}  // namespace train_digits
