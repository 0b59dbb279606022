// SPDX-License-Identifier: Apache-2.0
// Labelled images in memory, and batches of them.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace train_digits {

inline constexpr int classes = 10;

// Pixels stay bytes, a quarter of the memory of floats, because every rank holds the whole set.
struct dataset {
  int rows = 0, columns = 0;
  int darkest = 255;                 // the pixel value that maps to 1.0
  std::vector<std::uint8_t> pixels;  // image after image, rows * columns each
  std::vector<std::uint8_t> labels;  // 0 to classes - 1

  std::size_t size() const noexcept { return labels.size(); }
  int pixels_per_image() const noexcept { return rows * columns; }
};

// Samples ready for the network: one column per image, pixels from 0 to 1.
struct batch {
  Eigen::MatrixXf images;
  std::vector<std::uint8_t> labels;
};

// Copies these images into `to` and reuses its memory. Indices must be below data.size().
void gather(const dataset& data, std::span<const std::uint32_t> indices, batch& to);

struct data_split {
  std::string name;
  dataset training, test;
};

// Takes the last `test_count` samples of a fixed shuffle of `all` as the test set. Throws std::runtime_error
// if no sample would be left for training.
data_split hold_out(const dataset& all, std::size_t test_count, std::string name);

// The digits that ship with the examples: 360 of 1,797 are the test set.
data_split load_digits(const std::filesystem::path& csv);

// A directory of MNIST files in IDX format, plain or .gz: train-images-idx3-ubyte and its labels for
// training, t10k-images-idx3-ubyte and its labels as the test set. With t10k alone, a tenth of it is held out.
// Without either, Keras' mnist.npz. Throws std::runtime_error that names the missing or damaged file.
data_split load_mnist(const std::filesystem::path& directory);

// The directory of MNIST files on this machine: TUTTI_MNIST_DIR if it is set, else the first default
// directory of torchvision, older TensorFlow programs and Keras that has images. Empty if there is none.
std::filesystem::path find_mnist();

// Scales every image to side x side pixels, bilinearly between the centres of the old ones.
dataset scaled(const dataset& images, int side);

}  // namespace train_digits
