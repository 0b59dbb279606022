// SPDX-License-Identifier: Apache-2.0
// Forward and backward pass on Eigen.
#include "train_digits/perceptron.hpp"

#include <tutti/train/shuffle.hpp>

#include <algorithm>
#include <cmath>

namespace train_digits {

template <class Scalar>
perceptron<Scalar>::perceptron(const std::vector<int>& sizes, std::uint64_t seed) {
  std::size_t end = 0;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    layer l;
    l.inputs = sizes[i];
    l.outputs = sizes[i + 1];
    l.weights = end;
    l.biases = l.weights + static_cast<std::size_t>(l.inputs * l.outputs);
    end = l.biases + static_cast<std::size_t>(l.outputs);
    layers_.push_back(std::move(l));
  }
  parameters_.assign(end, Scalar(0));
  gradient_.assign(end, Scalar(0));

  // Uniform with variance 2 / inputs (He et al. 2015), which keeps the scale of activations through ReLU
  // layers.
  tutti::random_bits bits(seed);
  for (const layer& l : layers_) {
    const double limit = std::sqrt(6.0 / static_cast<double>(l.inputs));
    for (std::size_t i = l.weights; i < l.biases; ++i) {
      parameters_[i] = static_cast<Scalar>(limit * (2.0 * bits.uniform() - 1.0));
    }
  }
}

template <class Scalar>
void perceptron<Scalar>::forward(const matrix& images) {
  const matrix* input = &images;
  for (layer& l : layers_) {
    l.output.resize(l.outputs, input->cols());
    l.output.noalias() = weights_in(parameters_, l) * *input;
    l.output.colwise() += biases_in(parameters_, l);
    if (&l != &layers_.back()) l.output = l.output.cwiseMax(Scalar(0));
    input = &l.output;
  }
}

// Sets the last layer's delta from its output.
template <class Scalar>
double perceptron<Scalar>::softmax_loss(std::span<const std::uint8_t> labels, Scalar weight) {
  layer& last = layers_.back();
  last.delta.resize(last.outputs, last.output.cols());
  double loss = 0;
  for (Eigen::Index k = 0; k < last.output.cols(); ++k) {
    const auto scores = last.output.col(k);
    auto delta = last.delta.col(k);
    const Eigen::Index label = labels[static_cast<std::size_t>(k)];
    const Scalar highest = scores.maxCoeff();  // subtracted, so that exp cannot overflow
    delta = (scores.array() - highest).exp().matrix();
    const Scalar total = delta.sum();
    loss += std::log(static_cast<double>(total)) + static_cast<double>(highest) -
            static_cast<double>(scores(label));
    delta *= weight / total;
    delta(label) -= weight;
  }
  return loss;
}

template <class Scalar>
double perceptron<Scalar>::backward(const matrix& images, std::span<const std::uint8_t> labels,
                                    Scalar weight) {
  if (labels.empty()) {
    std::ranges::fill(gradient_, Scalar(0));
    return 0;
  }
  forward(images);
  const double loss = softmax_loss(labels, weight);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layer& l = layers_[i];
    const matrix& input = i > 0 ? layers_[i - 1].output : images;
    weights_in(gradient_, l).noalias() = l.delta * input.transpose();
    biases_in(gradient_, l) = l.delta.rowwise().sum();
    if (i == 0) break;
    layer& below = layers_[i - 1];
    below.delta.resize(below.outputs, l.delta.cols());
    below.delta.noalias() = weights_in(parameters_, l).transpose() * l.delta;
    below.delta.array() *= (below.output.array() > Scalar(0)).template cast<Scalar>();
  }
  return loss;
}

template <class Scalar>
std::size_t perceptron<Scalar>::count_correct(const matrix& images, std::span<const std::uint8_t> labels) {
  if (labels.empty()) return 0;
  forward(images);
  std::size_t correct = 0;
  for (std::size_t k = 0; k < labels.size(); ++k) {
    Eigen::Index best = 0;
    layers_.back().output.col(static_cast<Eigen::Index>(k)).maxCoeff(&best);
    if (best == labels[k]) ++correct;
  }
  return correct;
}

template class perceptron<float>;
template class perceptron<double>;

}  // namespace train_digits
