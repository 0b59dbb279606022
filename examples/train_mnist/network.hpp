// SPDX-License-Identifier: Apache-2.0
// The network of the PyTorch distributed tutorial: two convolutions of 5 x 5 with pooling, dense layers,
// dropout.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace train_mnist {

inline constexpr int image_side = 28, classes = 10;

// Dropout for training. These numbers decide it, not the rank, so that a batch is the same for any number of
// ranks. Half of the units stay, with twice their value.
struct dropout {
  std::uint64_t seed = 0, epoch = 0;
  std::span<const std::uint32_t> samples;  // index of each image in the data set; empty: no dropout
};

// One parameter in the array of all: `rows` units of equally many weights, or a vector of biases.
struct tensor {
  std::string name;
  std::size_t begin, size, rows;
};

// conv 1 -> 10, max-pool 2, ReLU; conv 10 -> 20, dropout of channels, max-pool 2, ReLU; 320 -> 50, ReLU,
// dropout; 50 -> 10, log-softmax. The hidden dense layers may differ from the tutorial's one of 50 units. One
// array holds all parameters and another all gradients. Scalar is float; the tests use double to compare
// gradients with finite differences.
template <class Scalar>
class network {
 public:
  using matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;

  // Initialises like torch.nn, uniform within 1 / sqrt(inputs of a unit), from the seed alone. `hidden`: the
  // units of each hidden dense layer.
  explicit network(std::uint64_t seed, const std::vector<int>& hidden = {50});

  // In order from input to output. A backward pass completes their gradients from the last to the first.
  const std::vector<tensor>& layout() const noexcept { return layout_; }
  std::span<Scalar> parameters() noexcept { return parameters_; }
  std::span<Scalar> gradient() noexcept { return gradient_; }

  // Sets gradient() to `weight` times the sum of the derivatives of the images' losses, and returns the
  // unweighted sum of the losses. `images` has one column per label. Calls `complete(i)` as soon as the
  // gradient of tensor i is complete, while earlier ones are still computed.
  double backward(const matrix& images, std::span<const std::uint8_t> labels, Scalar weight,
                  const dropout& left_out, const std::function<void(std::size_t)>& complete);
  // The number of images whose class equals their label, without dropout.
  std::size_t count_correct(const matrix& images, std::span<const std::uint8_t> labels);

 private:
  // A convolution, its pooling and its ReLU. Maps are stored by position, with the channels of each position
  // together, so that a patch is five contiguous runs.
  struct convolution {
    int channels, side, outputs;
    std::size_t weights, biases;
    matrix masks;   // of the channels of each image, or empty
    matrix output;  // after pooling and ReLU, a column per image
    Eigen::Matrix<std::uint8_t, Eigen::Dynamic, Eigen::Dynamic> largest;  // which of the four was largest
    matrix delta;                                                         // d(loss)/d(output)
    int out_side() const { return side - 4; }
    int pooled_side() const { return out_side() / 2; }
  };
  struct dense {
    Eigen::Index inputs, outputs;
    std::size_t weights, biases;
    matrix output, delta;
    matrix mask;  // of the units of each image, or empty
  };
  using completion = std::function<void(std::size_t)>;
  using weight_map = Eigen::Map<matrix>;
  using bias_map = Eigen::Map<Eigen::Matrix<Scalar, Eigen::Dynamic, 1>>;
  template <class Layer>
  weight_map weights_in(std::vector<Scalar>& flat, const Layer& l);
  template <class Layer>
  bias_map biases_in(std::vector<Scalar>& flat, const Layer& l);

  void draw_masks(const dropout& left_out, Eigen::Index images);
  void forward(const matrix& images);
  void convolve(convolution& layer, const matrix& input);
  double loss_of(std::span<const std::uint8_t> labels, Scalar weight);
  void backward_dense(std::size_t layer, const completion& complete);
  void backward_convolution(convolution& layer, const matrix& input, matrix* input_delta);
  void patches_of(const convolution& layer, const Scalar* input);

  static constexpr std::size_t first_dense = 4;  // after the tensors of the convolutions

  std::vector<tensor> layout_;
  std::vector<Scalar> parameters_, gradient_;
  convolution first_, second_;
  std::vector<dense> dense_;                        // hidden layers, then the output layer
  matrix patches_, map_, map_delta_, patch_delta_;  // of one image
};

extern template class network<float>;
extern template class network<double>;

}  // namespace train_mnist
