// SPDX-License-Identifier: Apache-2.0
// Blocks of int8: the error of an element, and infinities and NaNs.
#include "train/int8_blocks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tutti/train/shuffle.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::train;

namespace {

std::vector<float> there_and_back(const std::vector<float>& values) {
  std::vector<std::byte> bytes(int8_bytes(values.size()));
  quantise(values, bytes);
  std::vector<float> back(values.size(), 42.0F);
  dequantise(bytes, back);
  return back;
}

void check_near(const std::vector<float>& values) {
  const std::vector<float> back = there_and_back(values);
  for (std::size_t begin = 0; begin < values.size(); begin += int8_block) {
    const std::size_t end = std::min(values.size(), begin + int8_block);
    double most = 0;
    for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::abs(static_cast<double>(values[i])));
    for (std::size_t i = begin; i < end; ++i)
      CHECK(std::abs(static_cast<double>(back[i]) - static_cast<double>(values[i])) <=
            std::max(most / 253, most < 2.1e-36 ? most : 0));
  }
}

}  // namespace

TEST_CASE("int8_blocks: a byte for each element, and a float for each block") {
  CHECK(int8_bytes(0) == 0);
  CHECK(int8_bytes(1) == 5);
  CHECK(int8_bytes(256) == 260);
  CHECK(int8_bytes(257) == 265);
}

TEST_CASE("int8_blocks: the error is at most 1/253 of the largest magnitude, at every scale and length") {
  random_bits bits(7);
  for (const std::size_t n : {0UL, 1UL, 2UL, 255UL, 256UL, 257UL, 1000UL}) {
    for (const float scale : {1.0F, 1e-30F, 1e30F, 3e38F, 1e-37F, 1e-44F, 0.0F}) {
      CAPTURE(n);
      CAPTURE(scale);
      std::vector<float> values(n);
      for (float& v : values) v = scale * static_cast<float>(2 * bits.uniform() - 1);
      check_near(values);
      if (n > 5) values[5] = 100 * scale < 3e38F ? 100 * scale : scale;  // one large value among small ones
      check_near(values);
    }
  }
  // Ties, and special values.
  std::vector<float> steps;
  for (int i = -254; i <= 254; ++i) steps.push_back(static_cast<float>(i) / 2);
  check_near(steps);
  const std::vector<float> whole = {127, -127, 1, 0, -64};
  CHECK(there_and_back(whole) == whole);
}

TEST_CASE("int8_blocks: an infinity or NaN affects its whole block, and only that block") {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(700, 1.0F);
    values[300] = bad;
    const std::vector<float> back = there_and_back(values);
    for (std::size_t i = 0; i < back.size(); ++i) CHECK(std::isnan(back[i]) == (i / int8_block == 1));
    std::vector<std::byte> bytes(int8_bytes(values.size()));
    quantise(values, bytes);
    leave_what_is_lost(bytes, values);
    CHECK(std::ranges::all_of(values, [](float v) { return std::abs(v) < 1e-5F; }));
  }
}

TEST_CASE("int8_blocks: adding with a factor") {
  const std::vector<float> values = {127, -127, 2, 0};
  std::vector<std::byte> bytes(int8_bytes(values.size()));
  quantise(values, bytes);
  std::vector<float> sum(values.size(), 1.0F);
  add_dequantised(bytes, 0.5F, sum);
  CHECK(sum == std::vector<float>{64.5F, -62.5F, 2, 1});
}
