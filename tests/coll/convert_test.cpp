// SPDX-License-Identifier: Apache-2.0
// Converting arrays of floats to halves and back: the same result as for each element alone.
#include <tutti/convert.hpp>

#include <doctest/doctest.h>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tutti/error.hpp>
#include <vector>

using namespace tutti;

TEST_CASE_TEMPLATE("convert: the same result as the constructors, at every length", Half, float16, bfloat16) {
  std::vector<float> from = {0, -0.0F, 1, -1.5F, 65'520, 1e-8F, 1e-40F, -3e38F, 0.1F};
  from.push_back(std::numeric_limits<float>::infinity());
  from.push_back(std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; from.size() < 77; ++i) from.push_back(std::sin(static_cast<float>(i)) * 1000);
  for (std::size_t n = 0; n <= from.size(); ++n) {
    std::vector<Half> halves(n);
    convert(std::span<const float>(from).first(n), halves);
    std::vector<float> back(n);
    convert(halves, back);
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(halves[i].bits() == Half(from[i]).bits());
      CHECK(std::bit_cast<std::uint32_t>(back[i]) ==
            std::bit_cast<std::uint32_t>(static_cast<float>(halves[i])));
    }
  }
}

TEST_CASE("convert: different sizes are refused") {
  std::vector<float> floats(3);
  std::vector<float16> halves(4);
  CHECK_THROWS_WITH_AS(convert(floats, halves), doctest::Contains("3 elements to 4"), error);
  CHECK_THROWS_AS(convert(halves, floats), error);
}
