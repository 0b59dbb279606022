// SPDX-License-Identifier: Apache-2.0
// The IDX header and its checks.
#include "train_digits/idx.hpp"

#include "train_digits/gz_file.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

namespace train_digits {
namespace {

constexpr std::uint32_t images_magic = 0x00000803;  // unsigned bytes, three dimensions
constexpr std::uint32_t labels_magic = 0x00000801;  // unsigned bytes, one dimension
constexpr std::uint64_t largest_payload_bytes = std::uint64_t{1} << 30;
constexpr std::uint32_t largest_side = 4096;  // pixels

std::uint32_t read_word(gz_file& file) {
  std::array<std::uint8_t, 4> bytes{};
  if (file.read(bytes) != bytes.size())
    file.fail("ends inside its header: it is no IDX file, or it is cut off");
  std::uint32_t word = 0;
  for (const std::uint8_t byte : bytes) word = word << 8 | byte;
  return word;
}

void expect_magic(gz_file& file, std::uint32_t expected) {
  const std::uint32_t magic = read_word(file);
  if (magic == expected) return;
  if (magic == images_magic) file.fail("holds images where labels belong: are the two files exchanged?");
  if (magic == labels_magic) file.fail("holds labels where images belong: are the two files exchanged?");
  if (magic >> 16 == 0)
    file.fail("is IDX of another element type or dimension; needed are the unsigned bytes of MNIST");
  file.fail("is no IDX file: it does not begin with the magic number of MNIST's images or labels");
}

std::vector<std::uint8_t> read_payload(gz_file& file, std::uint64_t bytes) {
  constexpr std::size_t slice = 1u << 20;
  std::vector<std::uint8_t> payload;
  while (payload.size() < bytes) {
    const std::size_t before = payload.size();
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(slice, bytes - before));
    payload.resize(before + wanted);
    const std::size_t got = file.read(std::span(payload).subspan(before));
    if (got != wanted) {
      file.fail("is cut off: its header promises " + std::to_string(bytes) + " bytes of data, there are " +
                std::to_string(before + got) + ": download it again");
    }
  }
  std::array<std::uint8_t, 1> beyond{};
  if (file.read(beyond) != 0)
    file.fail("is longer than its header says (" + std::to_string(bytes) + " bytes of data)");
  return payload;
}

}  // namespace

idx_images read_idx_images(const std::filesystem::path& path) {
  gz_file file(path);
  expect_magic(file, images_magic);
  const std::uint64_t count = read_word(file);
  const std::uint32_t rows = read_word(file), columns = read_word(file);
  const std::string shape = std::to_string(count) + " images of " + std::to_string(rows) + " x " +
                            std::to_string(columns) + " pixels";
  if (count == 0 || rows == 0 || columns == 0) file.fail("is empty: " + shape);
  if (rows > largest_side || columns > largest_side) file.fail("has impossible dimensions: " + shape);
  const std::uint64_t pixels_each =
      std::uint64_t{rows} * columns;  // below 2^25, so that the product below fits
  if (count * pixels_each > largest_payload_bytes) file.fail("is too large: " + shape + ", more than 1 GiB");

  idx_images images;
  images.count = static_cast<std::size_t>(count);
  images.rows = static_cast<int>(rows);
  images.columns = static_cast<int>(columns);
  images.pixels = read_payload(file, count * pixels_each);
  return images;
}

std::vector<std::uint8_t> read_idx_labels(const std::filesystem::path& path) {
  gz_file file(path);
  expect_magic(file, labels_magic);
  const std::uint64_t count = read_word(file);
  if (count == 0) file.fail("is empty: 0 labels");
  if (count > largest_payload_bytes) file.fail("is too large: " + std::to_string(count) + " labels");
  return read_payload(file, count);
}

}  // namespace train_digits
