// SPDX-License-Identifier: Apache-2.0
// train_mnist's network: gradients against finite differences, shapes, dropout, and the sum of partial
// gradients.
#include "train_mnist/network.hpp"

#include <tutti/train/partition.hpp>
#include <tutti/train/shuffle.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

using namespace train_mnist;

namespace {

struct samples {
  Eigen::MatrixXd images;
  std::vector<std::uint8_t> labels;
  std::vector<std::uint32_t> numbers;
};

samples random_samples(int count, std::uint64_t seed) {
  tutti::random_bits bits(seed);
  samples s;
  s.images.resize(image_side * image_side, count);
  for (double& pixel : s.images.reshaped()) pixel = 2 * bits.uniform() - 1;
  for (int i = 0; i < count; ++i) {
    s.labels.push_back(static_cast<std::uint8_t>(bits.below(classes)));
    s.numbers.push_back(static_cast<std::uint32_t>(100 + i));
  }
  return s;
}

void nothing(std::size_t) {}

std::vector<double> copy_of(std::span<double> values) { return {values.begin(), values.end()}; }

}  // namespace

TEST_CASE("mnist network: the tutorial's layers") {
  network<double> n(1);
  CHECK(n.parameters().size() == 21840);  // as torch counts them: 260 + 5020 + 16050 + 510
  std::size_t end = 0;
  for (const tensor& t : n.layout()) {
    CHECK(t.begin == end);
    CHECK(t.size % t.rows == 0);
    end += t.size;
    for (const double v : n.parameters().subspan(t.begin, t.size)) REQUIRE(std::abs(v) < 0.21);
  }
  CHECK(end == 21840);
  const auto first = n.parameters().first(250);
  CHECK(*std::ranges::max_element(first) > 0.19);
  CHECK(*std::ranges::max_element(first) <= 0.2);
}

TEST_CASE("mnist network: other hidden layers") {
  const network<double> n(1, {30, 20});
  std::string names;
  for (const tensor& t : n.layout()) names += t.name + "=" + std::to_string(t.size) + " ";
  CHECK(names ==
        "conv1.weight=250 conv1.bias=10 conv2.weight=5000 conv2.bias=20 fc1.weight=9600 fc1.bias=30 "
        "fc2.weight=600 fc2.bias=20 fc3.weight=200 fc3.bias=10 ");
}

TEST_CASE("mnist network: the gradient is the derivative of the loss, with and without dropout") {
  const samples s = random_samples(5, 3);
  struct way {
    bool drops;
    std::vector<int> hidden;
  };
  for (const way& w : {way{false, {50}}, way{true, {50}}, way{true, {30, 20}}}) {
    const bool drops = w.drops;
    CAPTURE(drops);
    network<double> n(42, w.hidden);
    const dropout left_out{
        9, 2, drops ? std::span<const std::uint32_t>(s.numbers) : std::span<const std::uint32_t>()};
    const double weight = 0.25;
    n.backward(s.images, s.labels, weight, left_out, nothing);
    const std::vector<double> gradient = copy_of(n.gradient());
    tutti::random_bits bits(5);
    // Every bias, but only some weights of each tensor, because forward passes are slow.
    for (const tensor& t : n.layout()) {
      CAPTURE(t.name);
      std::size_t not_zero = 0;
      for (std::size_t k = 0; k < std::min<std::size_t>(t.size, 40); ++k) {
        const std::size_t i = t.begin + (t.size <= 40 ? k : static_cast<std::size_t>(bits.below(t.size)));
        constexpr double h = 1e-6;
        double& p = n.parameters()[i];
        const double kept = p;
        p = kept + h;
        const double above = n.backward(s.images, s.labels, weight, left_out, nothing);
        p = kept - h;
        const double below = n.backward(s.images, s.labels, weight, left_out, nothing);
        p = kept;
        const double numeric = weight * (above - below) / (2 * h);
        CAPTURE(i);
        REQUIRE(std::abs(numeric - gradient[i]) < 1e-6 * std::max(1.0, std::abs(numeric)));
        if (gradient[i] != 0) ++not_zero;
      }
      CHECK(not_zero > 0);
    }
  }
}

TEST_CASE("mnist network: gradients of parts of a batch add up to the batch's gradient, with dropout") {
  const samples s = random_samples(7, 11);
  network<double> n(1);
  const double weight = 1.0 / 7;
  const auto part_of = [&](int rank, int ranks) {
    std::vector<int> columns(7);
    std::iota(columns.begin(), columns.end(), 0);
    const auto mine = tutti::share_of(std::span<const int>(columns), rank, ranks);
    samples part;
    part.images.resize(s.images.rows(), static_cast<Eigen::Index>(mine.size()));
    for (std::size_t k = 0; k < mine.size(); ++k) {
      part.images.col(static_cast<Eigen::Index>(k)) = s.images.col(mine[k]);
      part.labels.push_back(s.labels[static_cast<std::size_t>(mine[k])]);
      part.numbers.push_back(s.numbers[static_cast<std::size_t>(mine[k])]);
    }
    return part;
  };
  const double loss = n.backward(s.images, s.labels, weight, {3, 4, s.numbers}, nothing);
  const std::vector<double> whole = copy_of(n.gradient());
  for (const int ranks : {2, 4, 9}) {
    std::vector<double> sum(whole.size());
    double sum_of_losses = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const samples part = part_of(rank, ranks);
      sum_of_losses += n.backward(part.images, part.labels, weight, {3, 4, part.numbers}, nothing);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += n.gradient()[i];
    }
    CHECK(sum_of_losses == doctest::Approx(loss));
    double worst = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) worst = std::max(worst, std::abs(sum[i] - whole[i]));
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("mnist network: dropout differs by sample and epoch, drops about half, and is off in tests") {
  const samples s = random_samples(40, 2);
  network<double> n(1);
  const double first = n.backward(s.images, s.labels, 1, {1, 1, s.numbers}, nothing);
  CHECK(first == n.backward(s.images, s.labels, 1, {1, 1, s.numbers}, nothing));
  CHECK(first != n.backward(s.images, s.labels, 1, {1, 2, s.numbers}, nothing));
  CHECK(first != n.backward(s.images, s.labels, 1, {2, 1, s.numbers}, nothing));
  CHECK(first != n.backward(s.images, s.labels, 1, {1, 1, {}}, nothing));
  const std::size_t correct = n.count_correct(s.images, s.labels);
  n.backward(s.images, s.labels, 1, {1, 1, s.numbers}, nothing);
  CHECK(n.count_correct(s.images, s.labels) == correct);
}

TEST_CASE("mnist network: gradients are completed from the last to the first, and do not change afterwards") {
  const samples s = random_samples(3, 8);
  network<double> n(1);
  std::vector<std::size_t> order;
  std::vector<std::vector<double>> then(n.layout().size());
  n.backward(s.images, s.labels, 1, {1, 1, s.numbers}, [&](std::size_t i) {
    order.push_back(i);
    const tensor& t = n.layout()[i];
    then[i] = copy_of(n.gradient().subspan(t.begin, t.size));
  });
  CHECK(order == std::vector<std::size_t>{7, 6, 5, 4, 3, 2, 1, 0});
  for (std::size_t i = 0; i < then.size(); ++i)
    CHECK(then[i] == copy_of(n.gradient().subspan(n.layout()[i].begin, n.layout()[i].size)));
  // Without images the gradient is zero and all tensors are reported complete.
  order.clear();
  CHECK(n.backward(Eigen::MatrixXd(image_side * image_side, 0), {}, 1, {},
                   [&](std::size_t i) { order.push_back(i); }) == 0);
  CHECK(order.size() == 8);
  for (const double g : n.gradient()) REQUIRE(g == 0);
}

TEST_CASE("mnist network: a few steps learn a few images") {
  const samples s = random_samples(20, 6);
  network<double> n(3);
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    loss = n.backward(s.images, s.labels, 1.0 / 20, {}, nothing);
    for (std::size_t i = 0; i < n.parameters().size(); ++i) n.parameters()[i] -= 0.1 * n.gradient()[i];
  }
  CHECK(loss / 20 < 0.1);
  CHECK(n.count_correct(s.images, s.labels) == 20);
}
