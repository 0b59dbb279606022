// SPDX-License-Identifier: Apache-2.0
// The IDX reader on intact, damaged and malicious files.
#include "examples/scratch_files.hpp"

#include "train_digits/idx.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

using train_digits::read_idx_images;
using train_digits::read_idx_labels;
using tutti::test::scratch_directory;

namespace {

std::string word(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string images_header(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  return word(0x803) + word(count) + word(rows) + word(columns);
}

}  // namespace

TEST_CASE("idx: images and labels, plain and compressed") {
  const scratch_directory scratch;
  const std::string images = images_header(2, 1, 3) + std::string("\x01\x02\x03\xfd\xfe\xff", 6);
  const std::string labels = word(0x801) + word(2) + std::string("\x07\x00", 2);
  for (const bool compressed : {false, true}) {
    CAPTURE(compressed);
    const auto read =
        read_idx_images(compressed ? write_gz(scratch, "images", images) : scratch.write("images", images));
    CHECK(read.count == 2);
    CHECK(read.rows == 1);
    CHECK(read.columns == 3);
    CHECK(read.pixels == std::vector<std::uint8_t>{1, 2, 3, 253, 254, 255});
    CHECK(read_idx_labels(compressed ? write_gz(scratch, "labels", labels)
                                     : scratch.write("labels", labels)) == std::vector<std::uint8_t>{7, 0});
  }
}

TEST_CASE("idx: files longer than one read") {
  const scratch_directory scratch;
  const std::uint32_t side = 1500;  // 2.25 million bytes
  std::string payload(side * side, '\0');
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 7 % 251);
  const auto read = read_idx_images(write_gz(scratch, "images", images_header(1, side, side) + payload));
  CHECK(std::string(read.pixels.begin(), read.pixels.end()) == payload);
}

TEST_CASE("idx: errors name the cause") {
  const scratch_directory scratch;
  const auto images_error = [&](const std::string& content) {
    return tutti::test::error_of([&] { read_idx_images(scratch.write("file", content)); });
  };
  const auto labels_error = [&](const std::string& content) {
    return tutti::test::error_of([&] { read_idx_labels(scratch.write("file", content)); });
  };
  const auto contains = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    CHECK(text.find("file: ") != std::string::npos);  // the path comes first
  };

  contains(images_error(""), "ends inside its header");
  contains(images_error(word(0x803) + word(2)), "ends inside its header");
  contains(images_error("PNG and so on"), "is no IDX file");
  contains(images_error(word(0x0d03) + word(1) + word(1) + word(1) + "abcd"), "another element type");
  contains(images_error(word(0x801) + word(1) + "a"), "are the two files exchanged?");
  contains(labels_error(images_header(1, 1, 1) + "a"), "are the two files exchanged?");
  contains(images_error(images_header(0, 28, 28)), "is empty");
  contains(images_error(images_header(3, 0, 28)), "is empty");
  contains(images_error(images_header(1, 5000, 1) + std::string(5000, 'a')), "impossible dimensions");
  contains(images_error(images_header(0xffffffff, 4096, 4096)), "too large");
  contains(images_error(images_header(2, 2, 2) + "seven b"), "promises 8 bytes of data, there are 7");
  contains(images_error(images_header(1 << 20, 32, 32)), "there are 0");
  contains(images_error(images_header(1, 2, 2) + "fiver"), "longer than its header says");
  contains(labels_error(word(0x801) + word(0)), "is empty");
  contains(labels_error(word(0x801) + word(0xffffffff)), "too large");
  contains(labels_error(word(0x801) + word(3) + "ab"), "promises 3 bytes of data, there are 2");
}

TEST_CASE("idx: files that cannot be read") {
  const scratch_directory scratch;
  CHECK(tutti::test::error_of([&] { read_idx_images(scratch.path() / "nothing"); }).find("No such file") !=
        std::string::npos);
  CHECK(tutti::test::error_of([&] { read_idx_images(scratch.path()); }).find("is a directory") !=
        std::string::npos);

  const std::string payload(100'000, 'x');
  const auto whole = scratch.read(write_gz(scratch, "whole", images_header(1, 100, 1000) + payload));
  CHECK(tutti::test::error_of([&] {
          read_idx_images(scratch.write("cut", whole.substr(0, whole.size() / 2)));
        }).find("middle of its gzip stream") != std::string::npos);
  std::string damaged = whole;
  for (std::size_t i = 40; i < 60; ++i) damaged[i] = static_cast<char>(~damaged[i]);
  CHECK(tutti::test::error_of([&] {
          read_idx_images(scratch.write("damaged", damaged));
        }).find("not an intact gzip file") != std::string::npos);
}
