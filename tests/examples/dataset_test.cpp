// SPDX-License-Identifier: Apache-2.0
// Splits, batches, MNIST directories.
#include "examples/scratch_files.hpp"

#include "train_digits/dataset.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

using namespace train_digits;
using tutti::test::scratch_directory;

namespace {

// Sample i: pixels 2 i and 2 i + 1, label i modulo 10.
dataset numbered(std::size_t count) {
  dataset data;
  data.rows = 1;
  data.columns = 2;
  for (std::size_t i = 0; i < count; ++i) {
    data.pixels.push_back(static_cast<std::uint8_t>(2 * i));
    data.pixels.push_back(static_cast<std::uint8_t>(2 * i + 1));
    data.labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return data;
}

std::string idx_images(int count) {
  std::string bytes("\0\0\x08\x03\0\0\0\0\0\0\0\x01\0\0\0\x02", 16);
  bytes[7] = static_cast<char>(count);
  return bytes + std::string(static_cast<std::size_t>(count) * 2, 'x');
}

std::string idx_labels(int count, char label = 3) {
  std::string bytes("\0\0\x08\x01\0\0\0\0", 8);
  bytes[7] = static_cast<char>(count);
  return bytes + std::string(static_cast<std::size_t>(count), label);
}

std::string error_of_mnist(const scratch_directory& scratch) {
  return tutti::test::error_of([&] { load_mnist(scratch.path()); });
}

}  // namespace

TEST_CASE("dataset: held-out samples are always the same, and the rest is the training set") {
  const dataset all = numbered(100);
  const data_split split = hold_out(all, 20, "numbers"), again = hold_out(all, 20, "numbers");
  CHECK(split.training.size() == 80);
  CHECK(split.test.size() == 20);
  CHECK(split.test.pixels == again.test.pixels);

  std::vector<std::uint8_t> seen;
  for (const dataset* part : {&split.training, &split.test}) {
    for (std::size_t i = 0; i < part->size(); ++i) {
      CHECK(part->pixels[2 * i + 1] == part->pixels[2 * i] + 1);  // images stay whole
      CHECK(part->labels[i] == part->pixels[2 * i] / 2 % 10);     // and keep their labels
      seen.push_back(part->pixels[2 * i]);
    }
  }
  CHECK_FALSE(std::ranges::is_sorted(seen));
  std::ranges::sort(seen);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == 2 * i);

  CHECK(tutti::test::error_of([&] { hold_out(all, 100, "numbers"); }).find("too few") != std::string::npos);
  CHECK(tutti::test::error_of([&] { hold_out(numbered(5), 0, "numbers"); }).find("too few") !=
        std::string::npos);
}

TEST_CASE("dataset: a batch has a column per image, scaled to one") {
  const dataset data = numbered(50);
  batch b;
  gather(data, std::array<std::uint32_t, 3>{7, 0, 49}, b);
  CHECK(b.images.rows() == 2);
  CHECK(b.images.cols() == 3);
  CHECK(b.images(0, 0) == doctest::Approx(14 / 255.0));
  CHECK(b.images(1, 2) == doctest::Approx(99 / 255.0));
  CHECK(b.labels == std::vector<std::uint8_t>{7, 0, 9});
  gather(data, {}, b);
  CHECK(b.images.cols() == 0);
  CHECK(b.labels.empty());
}

TEST_CASE("dataset: the shipped digits hold out 360 of every kind") {
  const data_split split = load_digits(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz");
  CHECK(split.training.size() == 1437);
  CHECK(split.test.size() == 360);
  for (std::uint8_t digit = 0; digit < classes; ++digit)
    CHECK(std::ranges::count(split.test.labels, digit) >= 20);
}

TEST_CASE("dataset: MNIST directories, complete or partial, with either file name") {
  const scratch_directory scratch;
  CHECK(error_of_mnist(scratch).find("no MNIST images here") != std::string::npos);
  write_gz(scratch, "t10k-images-idx3-ubyte.gz", idx_images(30));
  CHECK(error_of_mnist(scratch).find("its labels are missing") != std::string::npos);
  scratch.write("t10k-labels-idx1-ubyte", idx_labels(30));
  const data_split part = load_mnist(scratch.path());
  CHECK(part.training.size() == 27);
  CHECK(part.test.size() == 3);

  scratch.write("train-images.idx3-ubyte", idx_images(40));
  write_gz(scratch, "train-labels.idx1-ubyte.gz", idx_labels(40));
  const data_split whole = load_mnist(scratch.path());
  CHECK(whole.training.size() == 40);
  CHECK(whole.test.size() == 30);
}

TEST_CASE("dataset: mismatched MNIST files") {
  const scratch_directory scratch;
  scratch.write("t10k-images-idx3-ubyte", idx_images(30));
  scratch.write("t10k-labels-idx1-ubyte", idx_labels(29));
  CHECK(error_of_mnist(scratch).find("has 29 labels for the 30 images") != std::string::npos);
  scratch.write("t10k-labels-idx1-ubyte", idx_labels(30, 10));
  CHECK(error_of_mnist(scratch).find("label 0 is 10; labels are 0 to 9") != std::string::npos);
  CHECK(tutti::test::error_of([&] { load_mnist(scratch.path() / "nothing"); }).find("is not a directory") !=
        std::string::npos);
}

TEST_CASE("dataset: scaled images keep flat areas, and are linear between the old pixels' centres") {
  dataset two;
  two.rows = two.columns = 2;
  two.pixels = {0, 100, 0, 100, 7, 7, 7, 7};
  two.labels = {1, 2};
  const dataset large = scaled(two, 4);
  CHECK(large.rows == 4);
  CHECK(large.columns == 4);
  CHECK(large.labels == two.labels);
  REQUIRE(large.pixels.size() == 32);
  for (std::size_t row = 0; row < 4; ++row) {
    const std::vector<std::uint8_t> line(large.pixels.begin() + static_cast<std::ptrdiff_t>(4 * row),
                                         large.pixels.begin() + static_cast<std::ptrdiff_t>(4 * row + 4));
    CHECK(line == std::vector<std::uint8_t>{0, 25, 75, 100});
  }
  CHECK(std::count(large.pixels.begin() + 16, large.pixels.end(), 7) == 16);
}
