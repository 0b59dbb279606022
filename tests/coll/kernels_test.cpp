// SPDX-License-Identifier: Apache-2.0
// The loops over elements on every instruction set of this processor: every type, reduction and form, bit for
// bit against their definitions, at all small sizes and alignments.
#include "coll/reduce.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

using namespace tutti;

namespace {

// Runs with each usable set of loops, and finally selects the fastest.
template <class Test>
void with_each_kernels(Test test) {
  const coll::kernels& before = coll::current_kernels();
  for (const coll::kernels* each : coll::all_kernels()) {
    if (!each->usable()) continue;
    CAPTURE(each->name);
    coll::choose_kernels(*each);
    test();
  }
  coll::choose_kernels(before);
}

// ---- definitions, one element at a time ----

template <class T>
constexpr bool is_half_v = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr bool is_complex_v = detail::is_complex(detail::element_type_of<T>());

// The type of the computation: float for halves, unsigned for integers so that they wrap.
template <class T>
struct computed {
  using type = T;
};
template <class T>
  requires std::is_integral_v<T>
struct computed<T> {
  using type = std::uint64_t;
};
template <class T>
  requires is_half_v<T>
struct computed<T> {
  using type = float;
};

// A product that the compiler does not contract with an addition.
template <class R>
R times(R a, R b) {
  const volatile R product = a * b;
  return product;
}

template <class R>
R number(R x) {
  if constexpr (std::is_floating_point_v<R>) return x != x ? std::numeric_limits<R>::quiet_NaN() : x;
  return x;
}

template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <class T>
auto once(reduce_kind kind, typename computed<T>::type a, typename computed<T>::type b) {
  using C = typename computed<T>::type;
  if (kind == reduce_kind::sum || kind == reduce_kind::avg || kind == reduce_kind::premul_sum)
    return C(a + b);
  if constexpr (is_complex_v<T>) {
    return C(times(a.real(), b.real()) - times(a.imag(), b.imag()),
             times(a.real(), b.imag()) + times(a.imag(), b.real()));
  } else {
    if (kind == reduce_kind::product) return C(a * b);
    using V = std::conditional_t<std::is_integral_v<T>, T, C>;  // compared with their sign
    if (kind == reduce_kind::min) return C(smaller(static_cast<V>(a), static_cast<V>(b)));
    if (kind == reduce_kind::max) return C(larger(static_cast<V>(a), static_cast<V>(b)));
    if constexpr (std::is_integral_v<T>) {
      if (kind == reduce_kind::band) return a & b;
      if (kind == reduce_kind::bor) return a | b;
      if (kind == reduce_kind::bxor) return a ^ b;
    }
    return C{};
  }
}

// Combines the elements of all inputs and rounds once; divides for avg if `ranks` is set.
template <class T>
T reduced(reduce_kind kind, std::span<T> elements, int ranks) {
  using C = typename computed<T>::type;
  C all = static_cast<C>(elements[0]);
  for (std::size_t k = 1; k < elements.size(); ++k) all = once<T>(kind, all, static_cast<C>(elements[k]));
  if constexpr (is_complex_v<T>) {
    using R = typename T::value_type;
    const R divisor = static_cast<R>(ranks);
    return T(number(all.real() / divisor), number(all.imag() / divisor));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(all);
  } else {
    return T(number(static_cast<C>(all / static_cast<C>(ranks))));
  }
}

template <class T>
std::vector<reduce_kind> kinds() {
  constexpr element_type type = detail::element_type_of<T>();
  std::vector<reduce_kind> all;
  if (type != element_type::boolean) all = {reduce_kind::sum, reduce_kind::product};
  if (!is_complex_v<T>) all.insert(all.end(), {reduce_kind::min, reduce_kind::max});
  if (std::is_integral_v<T>) all.insert(all.end(), {reduce_kind::band, reduce_kind::bor, reduce_kind::bxor});
  if (!std::is_integral_v<T>) all.push_back(reduce_kind::avg);
  return all;
}

// ---- inputs ----

struct random_bits {
  std::uint64_t state;
  std::uint64_t next() {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return state ^ (state >> 29);
  }
};

// Numbers of similar size, special values, and arbitrary bit patterns.
template <class T>
T some(random_bits& random) {
  const std::uint64_t bits = random.next() >> 8;
  if constexpr (is_complex_v<T>) {
    const auto real = some<typename T::value_type>(random);
    return T(real, some<typename T::value_type>(random));
  } else if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1) != 0;
  } else {
    using limits = std::numeric_limits<T>;
    if (bits % 4 == 0) {
      std::array<std::byte, sizeof(T)> any;
      const std::uint64_t pattern = random.next() ^ (random.next() << 32);
      std::memcpy(any.data(), &pattern, sizeof(any));
      return std::bit_cast<T>(any);
    }
    if (bits % 4 == 1) {
      const T corners[] = {T(0),
                           T(1),
                           limits::max(),
                           limits::lowest(),
                           T(-T(1)),
                           T(-T(0)),
                           limits::min(),
                           limits::infinity(),
                           T(-limits::infinity()),
                           limits::quiet_NaN(),
                           T(-limits::quiet_NaN()),
                           limits::denorm_min()};
      return corners[(bits >> 2) % std::size(corners)];
    }
    const int whole = static_cast<int>((bits >> 2) % 200) - 100;
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(whole);
    else
      return static_cast<T>(static_cast<float>(whole) / 4);
  }
}

// `count` elements at any byte offset, between guard bytes.
template <class T>
class block {
 public:
  block(std::size_t count, std::size_t shift)
      : count_(count), shift_(margin + shift), bytes_(shift_ + count * sizeof(T) + margin, std::byte{0xa5}) {}
  void* data() { return bytes_.data() + shift_; }
  void set(std::size_t i, T value) { std::memcpy(bytes_.data() + shift_ + i * sizeof(T), &value, sizeof(T)); }
  friend bool operator==(const block& a, const block& b) = default;

 private:
  static constexpr std::size_t margin = 64;
  std::size_t count_;
  std::size_t shift_;
  std::vector<std::byte> bytes_;
};

constexpr std::size_t sizes = 131;  // 0 to 130 elements: more than two rounds of the longest loop for most

template <class T>
void check_fold(reduce_kind kind, std::size_t inputs, std::size_t count) {
  random_bits random{count * 1000 + inputs * 10 + static_cast<std::size_t>(kind)};
  std::vector<block<T>> given;
  for (std::size_t k = 0; k < inputs; ++k) given.emplace_back(count, (count + 3 * k) % 16);
  block<T> sum(count, (count * 5 + 1) % 16);    // result of combine
  block<T> whole(count, (count * 5 + 1) % 16);  // result of reduce_all
  const block<T> untouched = sum;
  std::array<T, 8> room;
  const std::span<T> elements(room.data(), inputs);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < inputs; ++k) given[k].set(i, elements[k] = some<T>(random));
    sum.set(i, reduced<T>(kind, elements, 1));
    whole.set(i, reduced<T>(kind, elements, kind == reduce_kind::avg ? static_cast<int>(inputs) : 1));
  }

  detail::reduction op;
  op.kind = kind;
  constexpr element_type type = detail::element_type_of<T>();
  std::vector<const void*> pointers;
  for (auto& each : given) pointers.push_back(each.data());
  with_each_kernels([&] {
    CAPTURE(name_of(type));
    CAPTURE(name_of(kind));
    CAPTURE(inputs);
    CAPTURE(count);
    block<T> out = untouched;
    coll::reduce_all(op, type, pointers, out.data(), count);
    if (!(out == whole)) FAIL_CHECK("reduce_all differs");
    if (inputs == 2) {
      out = untouched;
      coll::combine(op, type, pointers[0], pointers[1], out.data(), count);
      if (!(out == sum)) FAIL_CHECK("combine differs");
    }
    // With the result in each of the inputs.
    for (std::size_t into = 0; into < inputs; ++into) {
      block<T> inplace = given[into];
      std::vector<const void*> with_out = pointers;
      with_out[into] = inplace.data();
      coll::reduce_all(op, type, with_out, inplace.data(), count);
      if (count > 0 && std::memcmp(inplace.data(), whole.data(), count * sizeof(T)) != 0)
        FAIL_CHECK("reduce_all into input " << into << " differs");
      if (inputs != 2) continue;
      inplace = given[into];
      with_out[into] = inplace.data();
      coll::combine(op, type, with_out[0], with_out[1], inplace.data(), count);
      if (count > 0 && std::memcmp(inplace.data(), sum.data(), count * sizeof(T)) != 0)
        FAIL_CHECK("combine into input " << into << " differs");
    }
  });
}

// Compares `run(in, out, count)` with `wanted(x)`, out of place and in place.
template <class T, class Run, class Wanted>
void check_map(const char* name, Run run, Wanted wanted) {
  for (std::size_t count = 0; count < sizes; ++count) {
    random_bits random{count};
    block<T> in(count, count % 16);
    block<T> right(count, count * 7 % 16);
    const block<T> untouched = right;
    for (std::size_t i = 0; i < count; ++i) {
      const T x = some<T>(random);
      in.set(i, x);
      right.set(i, wanted(x));
    }
    with_each_kernels([&] {
      CAPTURE(name);
      CAPTURE(name_of(detail::element_type_of<T>()));
      CAPTURE(count);
      block<T> out = untouched;
      run(in.data(), out.data(), count);
      if (!(out == right)) FAIL_CHECK("differs");
      block<T> inplace = in;
      run(inplace.data(), inplace.data(), count);
      if (count > 0 && std::memcmp(inplace.data(), right.data(), count * sizeof(T)) != 0)
        FAIL_CHECK("differs in place");
    });
  }
}

}  // namespace

#define NUMBERS                                                                                      \
  std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, \
      std::uint64_t, float, double, float16, bfloat16, std::complex<float>, std::complex<double>

TEST_CASE("kernels: the fastest loops of this processor are in use") {
  const coll::kernels* fastest = nullptr;
  for (const coll::kernels* each : coll::all_kernels())
    if (each->usable()) fastest = each;
  REQUIRE(fastest != nullptr);
  CHECK(&coll::current_kernels() == fastest);
  CHECK(coll::all_kernels().front()->usable());
}

TEST_CASE("kernels: this processor has every instruction set that the library has loops for") {
  std::string missing;
  for (const coll::kernels* each : coll::all_kernels())
    if (!each->usable()) missing += std::string(missing.empty() ? "" : ", ") + each->name;
  if (!missing.empty()) TUTTI_SKIP("loops not tested here for want of the instructions: " + missing);
}

TEST_CASE_TEMPLATE("kernels: every reduction at every size matches its definition bit for bit", T, bool,
                   NUMBERS) {
  for (const reduce_kind kind : kinds<T>())
    for (const std::size_t inputs : {1, 2, 3, 5})
      for (std::size_t count = 0; count < sizes; ++count) check_fold<T>(kind, inputs, count);
}

TEST_CASE_TEMPLATE("kernels: long blocks", T, bool, NUMBERS) {
  for (const reduce_kind kind : kinds<T>())
    for (const std::size_t inputs : {2, 8}) check_fold<T>(kind, inputs, 3'001);
}

TEST_CASE_TEMPLATE("kernels: premul_sum multiplies", T, NUMBERS) {
  const auto op = detail::make_reduction<detail::premul_sum_op<std::int8_t>, T>(premul_sum(std::int8_t{-3}));
  check_map<T>(
      "premul_sum",
      [&](const void* in, void* out, std::size_t count) {
        coll::prepare(op, detail::element_type_of<T>(), in, out, count, sizeof(T));
      },
      [](T x) {
        using C = typename computed<T>::type;
        if constexpr (is_complex_v<T>)
          return T(number(x.real() * -3), number(x.imag() * -3));
        else if constexpr (std::is_integral_v<T>)
          return static_cast<T>(static_cast<C>(x) * static_cast<C>(-3));
        else
          return T(number(static_cast<C>(x) * C(-3)));
      });
}

TEST_CASE_TEMPLATE("kernels: avg divides", T, float, double, float16, bfloat16, std::complex<float>,
                   std::complex<double>) {
  detail::reduction op;
  op.kind = reduce_kind::avg;
  check_map<T>(
      "avg",
      [&](const void* in, void* out, std::size_t count) {
        coll::prepare(op, detail::element_type_of<T>(), in, out, count, sizeof(T));
        coll::finish(op, detail::element_type_of<T>(), out, count, 7);
      },
      [](T x) {
        using C = typename computed<T>::type;
        if constexpr (is_complex_v<T>)
          return T(number(x.real() / 7), number(x.imag() / 7));
        else
          return T(number(static_cast<C>(x) / C(7)));
      });
}

TEST_CASE_TEMPLATE("kernels: halves to floats, every value", T, float16, bfloat16) {
  std::vector<T> halves;
  std::vector<float> wanted;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    halves.push_back(T::from_bits(static_cast<std::uint16_t>(bits)));
    wanted.push_back(halves.back());
  }
  with_each_kernels([&] {
    // Also one by one from the end, which uses another loop than whole vectors.
    std::vector<float> out(halves.size());
    coll::current_kernels().widen(detail::element_type_of<T>(), halves.data(), out.data(), halves.size());
    CHECK(std::memcmp(out.data(), wanted.data(), out.size() * sizeof(float)) == 0);
    for (std::size_t i = 0; i < halves.size(); ++i)
      coll::current_kernels().widen(detail::element_type_of<T>(), &halves[i], &out[i], 1);
    CHECK(std::memcmp(out.data(), wanted.data(), out.size() * sizeof(float)) == 0);
  });
}

TEST_CASE_TEMPLATE("kernels: floats to halves, at every rounding boundary and in between", T, float16,
                   bfloat16) {
  std::vector<float> floats;
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 4093)
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 4096)
    for (const std::uint64_t step : {-1, 0, 1})
      floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits + step)));
  std::vector<T> wanted;
  for (const float x : floats) wanted.push_back(T(x));
  with_each_kernels([&] {
    std::vector<T> out(floats.size());
    coll::current_kernels().narrow(detail::element_type_of<T>(), floats.data(), out.data(), floats.size());
    CHECK(std::memcmp(out.data(), wanted.data(), out.size() * sizeof(T)) == 0);
    for (std::size_t i = 0; i < floats.size(); ++i)
      coll::current_kernels().narrow(detail::element_type_of<T>(), &floats[i], &out[i], 1);
    CHECK(std::memcmp(out.data(), wanted.data(), out.size() * sizeof(T)) == 0);
  });
}
