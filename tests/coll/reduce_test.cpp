// SPDX-License-Identifier: Apache-2.0
// Reducing blocks of elements: every type with every reduction, aliased and not.
#include "coll/reduce.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <type_traits>
#include <vector>

using namespace tutti;

namespace {

template <class T>
void reduce(reduce_kind kind, const std::vector<T>& left, const std::vector<T>& right, std::vector<T>& out) {
  detail::reduction op;
  op.kind = kind;
  coll::combine(op, detail::element_type_of<T>(), left.data(), right.data(), out.data(), out.size());
}

template <class T>
T answer(reduce_kind kind, T a, T b) {
  using wide = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;   // wraps, and is cut off
  switch (kind) {
    case reduce_kind::sum:
    case reduce_kind::avg: return static_cast<T>(static_cast<wide>(a) + static_cast<wide>(b));
    case reduce_kind::product: return static_cast<T>(static_cast<wide>(a) * static_cast<wide>(b));
    case reduce_kind::min: return b < a ? b : a;
    case reduce_kind::max: return a < b ? b : a;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (kind == reduce_kind::band) return static_cast<T>(a & b);
    if (kind == reduce_kind::bor) return static_cast<T>(a | b);
    if (kind == reduce_kind::bxor) return static_cast<T>(a ^ b);
  }
  return T{};
}

template <class T>
std::vector<reduce_kind> kinds() {
  std::vector<reduce_kind> all = {reduce_kind::sum, reduce_kind::product, reduce_kind::min, reduce_kind::max};
  if constexpr (std::is_integral_v<T>) {
    all.insert(all.end(), {reduce_kind::band, reduce_kind::bor, reduce_kind::bxor});
  } else {
    all.push_back(reduce_kind::avg);
  }
  return all;
}

}  // namespace

TEST_CASE_TEMPLATE("reduce: every reduction, into the left, the right and a third block", T, std::int8_t, std::uint8_t,
                   std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float, double) {
  using limits = std::numeric_limits<T>;
  const T corners[] = {T(0), T(1), T(3), limits::max(), limits::lowest(), T(limits::max() / 2), static_cast<T>(-1), T(7)};
  constexpr std::size_t n = std::size(corners);
  for (const reduce_kind kind : kinds<T>()) {
    CAPTURE(name_of(kind));
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{15}, n * n}) {
      std::vector<T> left(count);
      std::vector<T> right(count);
      std::vector<T> wanted(count);
      for (std::size_t i = 0; i < count; ++i) {
        left[i] = corners[i % n];
        right[i] = corners[(i / n + i) % n];
        wanted[i] = answer(kind, left[i], right[i]);
      }
      std::vector<T> out(count);
      reduce(kind, left, right, out);
      CHECK(std::memcmp(out.data(), wanted.data(), count * sizeof(T)) == 0);
      std::vector<T> into_left = left;
      reduce(kind, into_left, right, into_left);
      CHECK(into_left == out);
      std::vector<T> into_right = right;
      reduce(kind, left, into_right, into_right);
      CHECK(into_right == out);
    }
  }
}

// Which of two zeros or NaNs comes out depends on which is left; it must not depend on where the result goes.
TEST_CASE_TEMPLATE("reduce: zeros and NaNs come out the same wherever the result goes", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T corners[] = {T(0), T(-0.0), nan, -nan, T(1), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()};
  constexpr std::size_t n = std::size(corners);
  for (const reduce_kind kind : kinds<T>()) {
    CAPTURE(name_of(kind));
    std::vector<T> left;
    std::vector<T> right;
    for (std::size_t i = 0; i < 5 * n * n; ++i) {
      left.push_back(corners[i % n]);
      right.push_back(corners[i / n % n]);
    }
    std::vector<T> out(left.size());
    reduce(kind, left, right, out);
    std::vector<T> into_left = left;
    reduce(kind, into_left, right, into_left);
    std::vector<T> into_right = right;
    reduce(kind, left, into_right, into_right);
    CHECK(std::memcmp(out.data(), into_left.data(), out.size() * sizeof(T)) == 0);
    CHECK(std::memcmp(out.data(), into_right.data(), out.size() * sizeof(T)) == 0);
    // The first block and the later ones are the same pairs: vector code and what is left over must agree.
    for (std::size_t i = n * n; i < out.size(); ++i) CHECK(std::memcmp(&out[i], &out[i % (n * n)], sizeof(T)) == 0);
  }
}

TEST_CASE("reduce: bool") {
  bool left[] = {false, false, true, true};
  const bool right[] = {false, true, false, true};
  const auto check = [&](reduce_kind kind, std::initializer_list<bool> wanted) {
    CAPTURE(name_of(kind));
    bool out[4];
    detail::reduction op;
    op.kind = kind;
    coll::combine(op, element_type::boolean, left, right, out, 4);
    CHECK(std::equal(wanted.begin(), wanted.end(), out));
  };
  check(reduce_kind::band, {false, false, false, true});
  check(reduce_kind::bor, {false, true, true, true});
  check(reduce_kind::bxor, {false, true, true, false});
  check(reduce_kind::min, {false, false, false, true});
  check(reduce_kind::max, {false, true, true, true});
}

TEST_CASE("reduce: only avg has a last step") {
  double data[] = {3, -6, 1};
  detail::reduction op;
  op.kind = reduce_kind::sum;
  coll::finish(op, element_type::float64, data, 3, 3);
  CHECK(data[0] == 3);
  op.kind = reduce_kind::avg;
  coll::finish(op, element_type::float64, data, 3, 3);
  CHECK(data[0] == 1);
  CHECK(data[1] == -2);
  CHECK(data[2] == 1.0 / 3);
}
