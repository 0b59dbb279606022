// SPDX-License-Identifier: Apache-2.0
// The meaning of reductions: valid types, wrapping, NaNs and zeros, halves in float, user-defined ones.
// kernels_test.cpp checks that every loop computes it.
#include "coll/reduce.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace tutti;

namespace {

struct point {
  float x, y;
};

// ---- what compiles ----

template <class T, class Op>
constexpr bool fits(Op) {
  return detail::reduces<Op, T>();
}
template <class T>
constexpr bool bitwise = fits<T>(band) && fits<T>(bor) && fits<T>(bxor);
template <class T>
constexpr bool ordered = fits<T>(tutti::min) && fits<T>(tutti::max);
template <class T>
constexpr bool numeric = fits<T>(sum) && fits<T>(product) && fits<T>(premul_sum(2));

static_assert(numeric<int> && ordered<int> && bitwise<int> && !fits<int>(avg));
static_assert(numeric<unsigned char> && ordered<char> && bitwise<long long> && numeric<std::uint64_t>);
static_assert(numeric<float> && ordered<float> && !bitwise<float> && fits<float>(avg));
static_assert(numeric<float16> && ordered<float16> && !bitwise<float16> && fits<float16>(avg));
static_assert(numeric<bfloat16> && ordered<bfloat16> && !bitwise<bfloat16> && fits<bfloat16>(avg));
static_assert(numeric<std::complex<float>> && !ordered<std::complex<float>> &&
              fits<std::complex<double>>(avg));
static_assert(!fits<bool>(sum) && !fits<bool>(premul_sum(1)) && ordered<bool> && bitwise<bool> &&
              !fits<bool>(avg));
static_assert(!fits<point>(sum) && !fits<point>(tutti::min) && !fits<std::complex<long double>>(sum));
static_assert(fits<double>(premul_sum(0.5)) && !fits<int>(premul_sum(0.5)) &&
              fits<std::complex<float>>(premul_sum(0.5)));
static_assert(detail::element_type_of<detail::compiler_float16>() == element_type::float16);
static_assert(sizeof(detail::compiler_float16) == 2);

// ---- running one ----

template <class T, class Op>
detail::reduction made(const Op& op) {
  return detail::make_reduction<Op, T>(op);
}

template <class T>
using blocks = std::vector<std::vector<T>>;

template <class T>
std::vector<const void*> pointers_to(const blocks<T>& inputs) {
  std::vector<const void*> pointers;
  for (const auto& each : inputs) pointers.push_back(each.data());
  return pointers;
}

template <class T, class Op>
std::vector<T> reduced(const Op& op, const blocks<T>& inputs) {
  std::vector<T> out(inputs[0].size());
  coll::reduce_all(made<T>(op), detail::element_type_of<T>(), pointers_to(inputs), out.data(), out.size());
  return out;
}

// Like an algorithm does for halves: prepares, combines in pairs and finishes as floats, rounds once.
template <class T, class Op>
std::vector<T> reduced_as_floats(const Op& op, const blocks<T>& inputs) {
  const detail::reduction r = made<T>(op);
  constexpr element_type type = detail::element_type_of<T>();
  const element_type accumulator = coll::accumulator_of(r, type);
  REQUIRE(accumulator == element_type::float32);
  const std::size_t count = inputs[0].size();
  std::vector<float> all(count), next(count);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    float* const place = k == 0 ? all.data() : next.data();
    coll::current_kernels().widen(type, inputs[k].data(), place, count);
    coll::prepare(r, accumulator, place, place, count, sizeof(float));
    if (k > 0) coll::combine(r, accumulator, all.data(), next.data(), all.data(), count);
  }
  coll::finish(r, accumulator, all.data(), count, static_cast<int>(inputs.size()));
  std::vector<T> out(count);
  coll::current_kernels().narrow(type, all.data(), out.data(), count);
  return out;
}

template <class T>
std::string bits_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

TEST_CASE("reduce: integers wrap around") {
  CHECK(reduced<std::int8_t>(sum, {{127}, {1}}) == std::vector<std::int8_t>{-128});
  CHECK(reduced<std::uint16_t>(product, {{65535}, {65535}}) == std::vector<std::uint16_t>{1});
  const auto lowest = std::numeric_limits<std::int64_t>::min();
  CHECK(reduced<std::int64_t>(sum, {{lowest}, {-1}}) ==
        std::vector{std::numeric_limits<std::int64_t>::max()});
  CHECK(reduced<std::int32_t>(tutti::min, {{-1, 5}, {1, 7}, {0, -9}}) == std::vector{-1, -9});
  CHECK(reduced<std::uint32_t>(tutti::max, {{0xffffffff}, {1}}) == std::vector{0xffffffff});
}

TEST_CASE("reduce: bool") {
  constexpr std::array<bool, 4> left{false, false, true, true};
  constexpr std::array<bool, 4> right{false, true, false, true};
  const auto check = [&](const auto& op, std::array<bool, 4> wanted) {
    const detail::reduction r = made<bool>(op);
    CAPTURE(name_of(r.kind));
    std::array<bool, 4> out{};
    coll::combine(r, element_type::boolean, left.data(), right.data(), out.data(), 4);
    CHECK(out == wanted);
  };
  check(band, {false, false, false, true});
  check(bor, {false, true, true, true});
  check(bxor, {false, true, true, false});
  check(tutti::min, {false, false, false, true});
  check(tutti::max, {false, true, true, true});
}

TEST_CASE("reduce: complex numbers") {
  using number = std::complex<double>;
  const blocks<number> inputs{{{1, 2}, {0, 1}}, {{3, -4}, {0, 1}}, {{-1, 0.5}, {0, 1}}};
  CHECK(reduced<number>(sum, inputs) == std::vector<number>{{3, -1.5}, {0, 3}});
  CHECK(reduced<number>(avg, inputs) == std::vector<number>{{1, -0.5}, {0, 1}});
  CHECK(reduced<number>(product, inputs) == std::vector<number>{{-12, 3.5}, {0, -1}});
}

// The bits do not depend on the order of ranks: no NaN is lost, none keeps its payload, and zeros are
// ordered.
TEST_CASE_TEMPLATE("reduce: min and max do not depend on the order of ranks", T, float, double, float16,
                   bfloat16) {
  using limits = std::numeric_limits<T>;
  const T corners[] = {
      T(0),         T(-0.0F), limits::quiet_NaN(), T(-limits::quiet_NaN()), limits::signaling_NaN(),
      T(1),         T(-1),    limits::infinity(),  T(-limits::infinity()),  limits::denorm_min(),
      limits::max()};
  blocks<T> inputs(3);
  for (const T a : corners)
    for (const T b : corners)
      for (const T c : corners) {
        inputs[0].push_back(a);
        inputs[1].push_back(b);
        inputs[2].push_back(c);
      }
  const auto check = [&](const auto& op) {
    const std::vector<T> wanted = reduced<T>(op, inputs);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const bool nan = std::isnan(float(inputs[0][i])) || std::isnan(float(inputs[1][i])) ||
                       std::isnan(float(inputs[2][i]));
      if (nan != std::isnan(float(wanted[i]))) FAIL_CHECK("a NaN is lost, or made");
    }
    std::array<std::size_t, 3> order{0, 1, 2};
    do {
      CHECK(bits_of(reduced<T>(op, {inputs[order[0]], inputs[order[1]], inputs[order[2]]})) ==
            bits_of(wanted));
      // Grouped to the right: a op (b op c).
      const std::vector<T> tail = reduced<T>(op, {inputs[order[1]], inputs[order[2]]});
      CHECK(bits_of(reduced<T>(op, {inputs[order[0]], tail})) == bits_of(wanted));
    } while (std::next_permutation(order.begin(), order.end()));
  };
  check(tutti::min);
  check(tutti::max);
  CHECK(bits_of(reduced<T>(tutti::min, {{T(0)}, {T(-0.0F)}})) == bits_of(std::vector{T(-0.0F)}));
  CHECK(bits_of(reduced<T>(tutti::max, {{T(-0.0F)}, {T(0)}})) == bits_of(std::vector{T(0)}));
}

TEST_CASE_TEMPLATE("reduce: a NaN result has no sign and no payload", T, float, double, float16, bfloat16) {
  using limits = std::numeric_limits<T>;
  const T minus_nan(-limits::quiet_NaN());
  const T infinity = limits::infinity();
  const blocks<T> inputs{{minus_nan, T(1), infinity, T(0)}, {T(1), minus_nan, T(-infinity), infinity}};
  const T nan = limits::quiet_NaN();
  CHECK(bits_of(reduced<T>(sum, inputs)) == bits_of(std::vector<T>{nan, nan, nan, infinity}));
  CHECK(bits_of(reduced<T>(avg, inputs)) == bits_of(std::vector<T>{nan, nan, nan, infinity}));
  CHECK(bits_of(reduced<T>(product, inputs)) == bits_of(std::vector<T>{nan, nan, T(-infinity), nan}));
}

TEST_CASE("reduce: sums of halves stay floats until the end") {
  // Counting on by ones stops here for halves: 2048 + 1 is 2048.
  blocks<float16> numbers(8, {float16(1)});
  numbers[0] = {float16(2048)};
  CHECK(reduced<float16>(sum, numbers)[0] == 2056);  // 2055, rounded once
  CHECK(reduced_as_floats<float16>(sum, numbers)[0] == 2056);
  CHECK(reduced_as_floats<float16>(premul_sum(0.5), numbers)[0] == 1028);  // 1027.5, a tie
  blocks<bfloat16> brains(5, {bfloat16(1)});
  brains[0] = {bfloat16(256)};
  CHECK(reduced<bfloat16>(sum, brains)[0] == 260);
  CHECK(reduced_as_floats<bfloat16>(sum, brains)[0] == 260);
}

TEST_CASE("reduce: halves have an average even if their sum overflows") {
  const blocks<float16> numbers(4, {float16(60'000), float16(-65'504)});
  const std::vector<float16> out = reduced<float16>(avg, numbers);
  CHECK(out[0] == 60'000);
  CHECK(out[1] == -65'504);
  CHECK(bits_of(reduced_as_floats<float16>(avg, numbers)) == bits_of(out));
  CHECK(std::isinf(float(reduced<float16>(sum, numbers)[0])));
}

TEST_CASE("reduce: only reductions that round keep floats") {
  const auto kept = [](const auto& op, element_type type) {
    detail::reduction r;
    r.kind = op.kind;
    return coll::accumulator_of(r, type);
  };
  CHECK(kept(sum, element_type::bfloat16) == element_type::float32);
  CHECK(kept(avg, element_type::float16) == element_type::float32);
  CHECK(kept(tutti::max, element_type::float16) == element_type::float16);
  CHECK(kept(sum, element_type::float64) == element_type::float64);
  const auto half_sum = [](float16 a, float16 b) { return float16(a + b); };
  CHECK(coll::accumulator_of(made<float16>(half_sum), element_type::float16) == element_type::float16);
}

TEST_CASE("reduce: premul_sum multiplies each input first, and then is a sum") {
  const auto prepared = []<class T>(const auto& op, std::vector<T> in) {
    std::vector<T> out(in.size());
    coll::prepare(made<T>(op), detail::element_type_of<T>(), in.data(), out.data(), in.size(), sizeof(T));
    return out;
  };
  CHECK(prepared(premul_sum(-3), std::vector<std::int8_t>{1, 2, 43}) ==
        std::vector<std::int8_t>{-3, -6, 127});
  CHECK(prepared(premul_sum(0.1), std::vector{1.0F, 3.0F}) ==
        std::vector{0.1F, 3.0F * 0.1F});  // as the element's type
  CHECK(prepared(premul_sum(0.1), std::vector{1.0, 3.0}) == std::vector{0.1, 3.0 * 0.1});
  const std::vector<std::complex<float>> numbers{{1, -2}};
  CHECK(prepared(premul_sum(2), numbers) == std::vector<std::complex<float>>{{2, -4}});
  // 0.1 is a float, not a half: 1001 times it is 100.1, and not 100.06.
  CHECK(prepared(premul_sum(0.1), std::vector{float16(1001)})[0] == float16(100.1F));
  CHECK(prepared(sum, std::vector{7, 8}) == std::vector{7, 8});
  CHECK(reduced<float>(premul_sum(5), {{1}, {2}, {3}}) == std::vector{6.0F});
}

TEST_CASE("reduce: only avg has a final step") {
  double data[] = {3, -6, 1};
  coll::finish(made<double>(sum), element_type::float64, data, 3, 3);
  CHECK(data[0] == 3);
  coll::finish(made<double>(avg), element_type::float64, data, 3, 3);
  CHECK(data[0] == 1);
  CHECK(data[1] == -2);
  CHECK(data[2] == 1.0 / 3);
}

TEST_CASE("reduce: a user's reduction of elements longer than the stack") {
  struct large {
    std::array<std::uint32_t, 1 << 20> values;
  };
  const auto add = [](const large& a, const large& b) {
    large result;
    for (std::size_t i = 0; i < result.values.size(); ++i) result.values[i] = a.values[i] * 3 + b.values[i];
    return result;
  };
  std::vector<large> elements(3);
  for (std::uint32_t i = 0; i < 3; ++i) elements[i].values.fill(i + 1);
  struct job {
    detail::reduction op;
    std::vector<large>& elements;
  } j{made<large>(add), elements};
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
  pthread_t thread;
  const auto fold = [](void* of) -> void* {
    const job& now = *static_cast<job*>(of);
    const void* const inputs[] = {&now.elements[0], &now.elements[1], &now.elements[2]};
    now.op.fold(now.op, inputs, 3, &now.elements[2], 1);
    now.op.fold(now.op, inputs, 2, &now.elements[0], 1);
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, fold, &j) == 0);
  CHECK(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
  CHECK(elements[2].values.back() == (1 * 3 + 2) * 3 + 3);
  CHECK(elements[0].values.back() == 1 * 3 + 2);
  CHECK(elements[1].values.front() == 2);
}

TEST_CASE("reduce: a user's reduction is called in rank order, with its result in any of the inputs") {
  std::uint64_t base = 10;
  const auto digits = [&base](std::uint64_t a, std::uint64_t b) { return a * base + b; };  // shows the order
  for (std::size_t n = 1; n <= 5; ++n) {
    blocks<std::uint64_t> inputs;
    std::vector<std::uint64_t> wanted{0, 0};
    for (std::size_t k = 0; k < n; ++k) {
      inputs.push_back({k + 1, k + 2});
      wanted = {wanted[0] * 10 + k + 1, wanted[1] * 10 + k + 2};
    }
    CHECK(reduced<std::uint64_t>(digits, inputs) == wanted);
    for (std::size_t into = 0; into < n; ++into) {
      blocks<std::uint64_t> copies = inputs;
      coll::reduce_all(made<std::uint64_t>(digits), element_type::uint64, pointers_to(copies),
                       copies[into].data(), 2);
      CHECK(copies[into] == wanted);
    }
  }
  const auto longer = [](point a, point b) { return std::hypot(a.x, a.y) < std::hypot(b.x, b.y) ? b : a; };
  const std::vector<point> longest = reduced<point>(longer, {{{1, 1}}, {{-3, 4}}, {{2, 2}}});
  CHECK(longest[0].x == -3);
  const auto larger_real = [](std::complex<float> a, std::complex<float> b) {
    return a.real() < b.real() ? b : a;
  };
  CHECK(reduced<std::complex<float>>(larger_real, {{{1, 5}}, {{2, 3}}})[0] == std::complex<float>(2, 3));
  const auto half_product = [](bfloat16 a, bfloat16 b) { return bfloat16(a * b); };
  CHECK(reduced<bfloat16>(half_product, {{bfloat16(3)}, {bfloat16(-2)}})[0] == -6);
}

TEST_CASE("reduce: every type and reduction has a name and a size") {
  for (int i = 0; i <= static_cast<int>(element_type::complex_float64); ++i) {
    const auto type = static_cast<element_type>(i);
    CHECK(std::string(name_of(type)) != "?");
    CHECK((coll::bytes_of(type) == 0) == (type == element_type::opaque));
  }
  for (int i = 0; i <= static_cast<int>(reduce_kind::premul_sum); ++i)
    CHECK(std::string(name_of(static_cast<reduce_kind>(i))) != "?");
  CHECK(coll::bytes_of(element_type::complex_float64) == sizeof(std::complex<double>));
  CHECK(coll::bytes_of(element_type::bfloat16) == sizeof(bfloat16));
}
