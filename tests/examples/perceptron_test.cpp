// SPDX-License-Identifier: Apache-2.0
// Gradients against finite differences; and gradients of parts add up, on which data parallelism relies.
#include "train_digits/perceptron.hpp"

#include "train_digits/sgd.hpp"

#include <tutti/train/partition.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

using namespace train_digits;

namespace {

using matrix = Eigen::MatrixXd;

struct samples {
  matrix images;
  std::vector<std::uint8_t> labels;
};

samples random_samples(int features, int classes, int count, std::uint64_t seed) {
  tutti::random_bits bits(seed);
  samples s;
  s.images.resize(features, count);
  for (double& pixel : s.images.reshaped()) pixel = 2 * bits.uniform() - 1;
  for (int i = 0; i < count; ++i)
    s.labels.push_back(static_cast<std::uint8_t>(bits.below(static_cast<std::uint64_t>(classes))));
  return s;
}

}  // namespace

TEST_CASE("perceptron: the gradient is the derivative of the loss") {
  for (const std::vector<int>& sizes : {std::vector<int>{5, 3}, {6, 8, 4}, {7, 9, 5, 3}}) {
    CAPTURE(sizes.size());
    perceptron<double> network(sizes, 42);
    // Biases start at zero. They are moved, so that they are tested too.
    tutti::random_bits bits(7);
    for (double& p : network.parameters()) p += 0.1 * (2 * bits.uniform() - 1);
    const samples s = random_samples(sizes.front(), sizes.back(), 11, 3);
    const double weight = 0.25;
    network.backward(s.images, s.labels, weight);
    const std::vector<double> gradient(network.gradient().begin(), network.gradient().end());

    constexpr double h = 1e-6;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& p = network.parameters()[i];
      const double kept = p;
      p = kept + h;
      const double above = network.backward(s.images, s.labels, weight);
      p = kept - h;
      const double below = network.backward(s.images, s.labels, weight);
      p = kept;
      const double numeric = weight * (above - below) / (2 * h);
      CAPTURE(i);
      REQUIRE(std::abs(numeric - gradient[i]) < 1e-7 * std::max(1.0, std::abs(numeric)));
    }
  }
}

TEST_CASE("perceptron: gradients of uneven and empty shares add up to the whole batch's gradient") {
  const samples s = random_samples(6, 4, 7, 11);
  perceptron<double> network({6, 8, 4}, 1);
  const double loss = network.backward(s.images, s.labels, 1.0 / 7);
  const std::vector<double> whole(network.gradient().begin(), network.gradient().end());

  for (const int ranks : {2, 3, 7, 9}) {
    CAPTURE(ranks);
    std::vector<int> columns(7);
    std::iota(columns.begin(), columns.end(), 0);
    std::vector<double> sum(whole.size(), 0.0);
    double loss_sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::span<const int> mine = tutti::share_of(std::span<const int>(columns), rank, ranks);
      samples part;
      part.images.resize(6, static_cast<Eigen::Index>(mine.size()));
      for (std::size_t k = 0; k < mine.size(); ++k) {
        part.images.col(static_cast<Eigen::Index>(k)) = s.images.col(mine[k]);
        part.labels.push_back(s.labels[static_cast<std::size_t>(mine[k])]);
      }
      loss_sum += network.backward(part.images, part.labels, 1.0 / 7);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += network.gradient()[i];
    }
    CHECK(loss_sum == doctest::Approx(loss).epsilon(1e-12));
    for (std::size_t i = 0; i < sum.size(); ++i) REQUIRE(std::abs(sum[i] - whole[i]) < 1e-14);
  }
}

TEST_CASE("perceptron: large scores do not overflow") {
  perceptron<float> network({2, 3}, 5);
  for (float& p : network.parameters()) p *= 1e4f;
  Eigen::MatrixXf images(2, 2);
  images << 1, -1, 1, 1;
  const double loss = network.backward(images, std::vector<std::uint8_t>{0, 2}, 0.5f);
  CHECK(std::isfinite(loss));
  CHECK(std::ranges::all_of(network.gradient(), [](float g) { return std::isfinite(g); }));
}

TEST_CASE("perceptron: the seed determines the parameters, within He's limits") {
  perceptron<float> a({64, 32, 10}, 1), b({64, 32, 10}, 1), c({64, 32, 10}, 2);
  CHECK(a.parameters().size() == 64 * 32 + 32 + 32 * 10 + 10);
  CHECK(std::ranges::equal(a.parameters(), b.parameters()));
  CHECK_FALSE(std::ranges::equal(a.parameters(), c.parameters()));
  const auto first = a.parameters().first(64 * 32);
  double square_sum = 0;
  for (const float w : first) {
    CHECK(std::abs(w) <= std::sqrt(6.0f / 64));
    square_sum += static_cast<double>(w) * static_cast<double>(w);
  }
  CHECK(square_sum / static_cast<double>(first.size()) == doctest::Approx(2.0 / 64).epsilon(0.1));
}

TEST_CASE("perceptron: learns exclusive or, which no single layer can") {
  perceptron<float> network({2, 16, 2}, 3);
  sgd optimiser(network.parameters().size(), 0.1f, 0.9f);
  Eigen::MatrixXf images(2, 4);
  images << 0, 0, 1, 1, 0, 1, 0, 1;
  const std::vector<std::uint8_t> labels{0, 1, 1, 0};
  double loss = 0;
  for (int i = 0; i < 500; ++i) {
    loss = network.backward(images, labels, 0.25f);
    optimiser.step(network.parameters(), network.gradient());
  }
  CHECK(loss < 0.1);
  CHECK(network.count_correct(images, labels) == 4);
}

TEST_CASE("sgd: momentum as in torch.optim.SGD") {
  std::vector<float> parameters{1.0f};
  sgd optimiser(1, 0.5f, 0.5f);
  optimiser.step(parameters, std::vector<float>{1.0f});  // velocity 1
  CHECK(parameters[0] == 0.5f);
  optimiser.step(parameters, std::vector<float>{1.0f});  // velocity 1.5
  CHECK(parameters[0] == -0.25f);
}
