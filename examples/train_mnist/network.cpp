// SPDX-License-Identifier: Apache-2.0
// Convolutions are products of weights and patches, one image at a time, so that its patches stay in the
// cache.
#include "train_mnist/network.hpp"

#include <tutti/train/shuffle.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace train_mnist {
namespace {

constexpr int kernel = 5;

constexpr std::size_t conv1_weights = 0, conv1_biases = 250, conv2_weights = 260, conv2_biases = 5260,
                      end_of_convolutions = 5280;
constexpr int convolved = 320;  // 20 channels of 4 x 4

}  // namespace

template <class Scalar>
network<Scalar>::network(std::uint64_t seed, const std::vector<int>& hidden)
    : layout_{{"conv1.weight", conv1_weights, 250, 10},
              {"conv1.bias", conv1_biases, 10, 1},
              {"conv2.weight", conv2_weights, 5000, 20},
              {"conv2.bias", conv2_biases, 20, 1}},
      first_{1, image_side, 10, conv1_weights, conv1_biases, {}, {}, {}, {}},
      second_{10, 12, 20, conv2_weights, conv2_biases, {}, {}, {}, {}} {
  std::size_t end = end_of_convolutions;
  int inputs = convolved;
  std::vector<int> outputs = hidden;
  outputs.push_back(classes);
  for (const int units : outputs) {
    const std::string name = "fc" + std::to_string(dense_.size() + 1);
    const auto rows = static_cast<std::size_t>(units), weights = rows * static_cast<std::size_t>(inputs);
    layout_.push_back({name + ".weight", end, weights, rows});
    layout_.push_back({name + ".bias", end + weights, rows, 1});
    dense_.push_back({inputs, units, end, end + weights, {}, {}, {}});
    end += weights + rows;
    inputs = units;
  }
  parameters_.resize(end);
  gradient_.resize(end);
  tutti::random_bits bits(seed);
  for (std::size_t i = 0; i < layout_.size(); i += 2) {
    const tensor &weights = layout_[i], &biases = layout_[i + 1];
    const double limit = 1 / std::sqrt(static_cast<double>(weights.size / weights.rows));
    for (std::size_t k = weights.begin; k < biases.begin + biases.size; ++k)
      parameters_[k] = static_cast<Scalar>(limit * (2 * bits.uniform() - 1));
  }
}

// Weights of a unit are contiguous: the transposed matrix has a column per unit.
template <class Scalar>
template <class Layer>
auto network<Scalar>::weights_in(std::vector<Scalar>& flat, const Layer& l) -> weight_map {
  if constexpr (std::is_same_v<Layer, dense>)
    return weight_map(flat.data() + l.weights, l.inputs, l.outputs);
  else
    return weight_map(flat.data() + l.weights, kernel * kernel * l.channels, l.outputs);
}
template <class Scalar>
template <class Layer>
auto network<Scalar>::biases_in(std::vector<Scalar>& flat, const Layer& l) -> bias_map {
  return bias_map(flat.data() + l.biases, l.outputs);
}

template <class Scalar>
void network<Scalar>::draw_masks(const dropout& left_out, Eigen::Index images) {
  const std::span<dense> hidden(dense_.data(), dense_.size() - 1);
  if (left_out.samples.empty()) {
    second_.masks.resize(0, 0);
    for (dense& layer : hidden) layer.mask.resize(0, 0);
    return;
  }
  second_.masks.resize(second_.outputs, images);
  for (dense& layer : hidden) layer.mask.resize(layer.outputs, images);
  for (Eigen::Index n = 0; n < images; ++n) {
    // A different seed for each sample in each epoch.
    tutti::random_bits of_seed(left_out.seed), of_epoch(of_seed.next() ^ left_out.epoch);
    tutti::random_bits bits(of_epoch.next() ^ left_out.samples[static_cast<std::size_t>(n)]);
    const auto draw = [&bits, n](matrix& mask) {
      for (Scalar& unit : mask.col(n)) unit = (bits.next() >> 63) != 0 ? Scalar(2) : Scalar(0);
    };
    draw(second_.masks);
    for (dense& layer : hidden) draw(layer.mask);
  }
}

// Column p has the 5 x 5 positions from p to the lower right, each with its channels.
template <class Scalar>
void network<Scalar>::patches_of(const convolution& layer, const Scalar* input) {
  const int out = layer.out_side(), run = kernel * layer.channels;
  patches_.resize(kernel * run, out * out);
  Scalar* to = patches_.data();
  for (int y = 0; y < out; ++y)
    for (int x = 0; x < out; ++x)
      for (int k = 0; k < kernel; ++k)
        to = std::copy_n(input + ((y + k) * layer.side + x) * layer.channels, run, to);
}

template <class Scalar>
void network<Scalar>::convolve(convolution& layer, const matrix& input) {
  const int out = layer.out_side(), pooled = layer.pooled_side();
  const auto weights = weights_in(parameters_, layer);
  const auto biases = biases_in(parameters_, layer);
  layer.output.resize(pooled * pooled * layer.outputs, input.cols());
  layer.largest.resize(layer.output.rows(), input.cols());
  map_.resize(layer.outputs, out * out);
  for (Eigen::Index n = 0; n < input.cols(); ++n) {
    patches_of(layer, input.col(n).data());
    map_.noalias() = weights.transpose() * patches_;
    map_.colwise() += biases;
    if (layer.masks.size() > 0) map_.array().colwise() *= layer.masks.col(n).array();
    Scalar* to = layer.output.col(n).data();
    std::uint8_t* which = layer.largest.col(n).data();
    for (int y = 0; y < pooled; ++y)
      for (int x = 0; x < pooled; ++x)
        for (int c = 0; c < layer.outputs; ++c) {
          const Scalar* const corner = map_.data() + (2 * y * out + 2 * x) * layer.outputs + c;
          Scalar most = corner[0];
          std::uint8_t at = 0;
          const std::array<int, 4> places{0, layer.outputs, out * layer.outputs, (out + 1) * layer.outputs};
          for (std::uint8_t i = 1; i < 4; ++i)
            if (corner[places[i]] > most) {
              most = corner[places[i]];
              at = i;
            }
          *to++ = std::max(most, Scalar(0));
          *which++ = at;
        }
  }
}

template <class Scalar>
void network<Scalar>::forward(const matrix& images) {
  convolve(first_, images);
  convolve(second_, first_.output);
  const matrix* input = &second_.output;
  for (dense& layer : dense_) {
    layer.output.noalias() = weights_in(parameters_, layer).transpose() * *input;
    layer.output.colwise() += biases_in(parameters_, layer);
    if (&layer != &dense_.back()) layer.output = layer.output.cwiseMax(Scalar(0));
    if (layer.mask.size() > 0) layer.output.array() *= layer.mask.array();
    input = &layer.output;
  }
}

// Returns the negative log-likelihood of log-softmax, and sets the last layer's delta.
template <class Scalar>
double network<Scalar>::loss_of(std::span<const std::uint8_t> labels, Scalar weight) {
  dense& last = dense_.back();
  last.delta.resize(last.outputs, last.output.cols());
  double loss = 0;
  for (Eigen::Index n = 0; n < last.output.cols(); ++n) {
    const auto scores = last.output.col(n);
    auto delta = last.delta.col(n);
    const Eigen::Index label = labels[static_cast<std::size_t>(n)];
    const Scalar highest = scores.maxCoeff();  // subtracted, so that exp cannot overflow
    delta = (scores.array() - highest).exp().matrix();
    const Scalar total = delta.sum();
    loss += std::log(static_cast<double>(total)) + static_cast<double>(highest - scores(label));
    delta *= weight / total;
    delta(label) -= weight;
  }
  return loss;
}

// Completes the layer's gradient before it propagates the error to its input.
template <class Scalar>
void network<Scalar>::backward_dense(std::size_t i, const completion& complete) {
  dense& layer = dense_[i];
  const bool has_relu = i + 1 < dense_.size();
  if (has_relu) layer.delta.array() *= (layer.output.array() > Scalar(0)).template cast<Scalar>();
  if (layer.mask.size() > 0) layer.delta.array() *= layer.mask.array();
  const matrix& input = i == 0 ? second_.output : dense_[i - 1].output;
  weights_in(gradient_, layer).noalias() = input * layer.delta.transpose();
  biases_in(gradient_, layer) = layer.delta.rowwise().sum();
  complete(first_dense + 2 * i + 1);
  complete(first_dense + 2 * i);
  matrix& input_delta = i == 0 ? second_.delta : dense_[i - 1].delta;
  input_delta.noalias() = weights_in(parameters_, layer) * layer.delta;
}

template <class Scalar>
void network<Scalar>::backward_convolution(convolution& layer, const matrix& input, matrix* input_delta) {
  const int out = layer.out_side(), pooled = layer.pooled_side(), run = kernel * layer.channels;
  auto weights = weights_in(gradient_, layer);
  auto biases = biases_in(gradient_, layer);
  weights.setZero();
  biases.setZero();
  if (input_delta != nullptr) input_delta->setZero(input.rows(), input.cols());
  map_delta_.resize(layer.outputs, out * out);
  for (Eigen::Index n = 0; n < input.cols(); ++n) {
    // Propagates through ReLU and pooling: to the largest of each four, if it was positive.
    map_delta_.setZero();
    const Scalar *value = layer.output.col(n).data(), *delta = layer.delta.col(n).data();
    const std::uint8_t* which = layer.largest.col(n).data();
    for (int y = 0; y < pooled; ++y)
      for (int x = 0; x < pooled; ++x)
        for (int c = 0; c < layer.outputs; ++c, ++value, ++delta, ++which)
          if (*value > 0) map_delta_(c, (2 * y + *which / 2) * out + 2 * x + *which % 2) = *delta;
    if (layer.masks.size() > 0) map_delta_.array().colwise() *= layer.masks.col(n).array();

    patches_of(layer, input.col(n).data());
    weights.noalias() += patches_ * map_delta_.transpose();
    biases += map_delta_.rowwise().sum();
    if (input_delta == nullptr) continue;
    patch_delta_.noalias() = weights_in(parameters_, layer) * map_delta_;
    const Scalar* from = patch_delta_.data();
    Scalar* const to = input_delta->col(n).data();
    for (int y = 0; y < out; ++y)
      for (int x = 0; x < out; ++x)
        for (int k = 0; k < kernel; ++k, from += run) {
          Scalar* const at = to + ((y + k) * layer.side + x) * layer.channels;
          for (int i = 0; i < run; ++i) at[i] += from[i];
        }
  }
}

template <class Scalar>
double network<Scalar>::backward(const matrix& images, std::span<const std::uint8_t> labels, Scalar weight,
                                 const dropout& left_out, const std::function<void(std::size_t)>& complete) {
  if (labels.empty()) {  // a last batch may have fewer images than there are ranks
    std::ranges::fill(gradient_, Scalar(0));
    for (std::size_t i = layout_.size(); i-- > 0;) complete(i);
    return 0;
  }
  draw_masks(left_out, images.cols());
  forward(images);
  const double loss = loss_of(labels, weight);
  for (std::size_t i = dense_.size(); i-- > 0;) backward_dense(i, complete);
  backward_convolution(second_, first_.output, &first_.delta);
  complete(3);
  complete(2);
  backward_convolution(first_, images, nullptr);
  complete(1);
  complete(0);
  return loss;
}

template <class Scalar>
std::size_t network<Scalar>::count_correct(const matrix& images, std::span<const std::uint8_t> labels) {
  if (labels.empty()) return 0;
  draw_masks({}, images.cols());
  forward(images);
  std::size_t correct = 0;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    Eigen::Index best = 0;
    dense_.back().output.col(static_cast<Eigen::Index>(n)).maxCoeff(&best);
    if (best == labels[n]) ++correct;
  }
  return correct;
}

template class network<float>;
template class network<double>;

}  // namespace train_mnist
