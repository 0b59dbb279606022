// SPDX-License-Identifier: Apache-2.0
// Results are computed here, from the definitions in reduce_op.hpp, without code of src/.
#include "coll/conformance/reduction_cases.hpp"

#include <algorithm>

namespace tutti::test::reductions {
namespace {

template <class T>
constexpr bool is_half_v = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr bool is_complex_v =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <class T>
const char* name_of_elements() {
  return std::is_same_v<T, place> ? "structs" : name_of(detail::element_type_of<T>());
}

// Repeats after `period` elements.
template <class T>
T value(int rank, std::size_t i) {
  static constexpr int numbers[] = {1, 2, -1, 3, -2, 1, 2, 4};
  const auto r = static_cast<std::size_t>(rank);
  const int x = numbers[(r * 5 + i * 3 + i / 7) % 8];
  if constexpr (std::is_same_v<T, place>) {
    return {static_cast<float>(x), rank};
  } else if constexpr (std::is_same_v<T, bool>) {
    return (r * 3 + i + i / 5) % 4 != 0;
  } else if constexpr (is_complex_v<T>) {
    return T(static_cast<typename T::value_type>(x), static_cast<typename T::value_type>((r + i) % 3) - 1);
  } else if constexpr (is_half_v<T>) {
    return T(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// The type in which the serial result is computed: wide for integers, float for halves.
template <class T>
using wide = std::conditional_t<
    is_half_v<T>, float,
    std::conditional_t<!std::is_integral_v<T> || std::is_same_v<T, bool>, T,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>>;

// ---- reductions: the library's value for a rank, and the definition ----

template <class Op>
struct built_in {
  static constexpr reduce_kind which = Op::kind;
  static Op for_rank(int) { return {}; }
  template <class C>
  static C prepared(C x, int) {
    return x;
  }
  template <class C>
  static C both(C a, C b) {
    if constexpr (which == reduce_kind::sum || which == reduce_kind::avg) return a + b;
    if constexpr (which == reduce_kind::product) return a * b;
    if constexpr (which == reduce_kind::min) return b < a ? b : a;
    if constexpr (which == reduce_kind::max) return a < b ? b : a;
    if constexpr (which == reduce_kind::band) return a & b;
    if constexpr (which == reduce_kind::bor) return a | b;
    if constexpr (which == reduce_kind::bxor) return a ^ b;
  }
};

// Each rank has its own factor.
template <class Factor>
struct premultiplied {
  static constexpr reduce_kind which = reduce_kind::premul_sum;
  static detail::premul_sum_op<Factor> for_rank(int rank) {
    return premul_sum(static_cast<Factor>(rank % 3 + 1));
  }
  template <class C>
  static C prepared(C x, int rank) {
    C all = x;
    for (int i = 0; i < rank % 3; ++i) all = all + x;
    return all;
  }
  template <class C>
  static C both(C a, C b) {
    return a + b;
  }
};

// The larger element by an unusual order, for every type.
struct farther_out {
  template <class T>
    requires std::is_integral_v<T>
  static T key(T x) {
    return static_cast<T>(x ^ 1);
  }
  static std::pair<double, double> key(double x) { return {x < 0 ? -x : x, x}; }
  template <class R>
  static std::pair<double, double> key(std::complex<R> z) {
    return {static_cast<double>(std::norm(z)),
            2.0 * static_cast<double>(z.real()) + 9.0 * static_cast<double>(z.imag())};
  }
  static std::pair<double, double> key(place p) { return {p.value, -p.rank}; }
  template <class T>
  T operator()(T a, T b) const {
    return key(a) < key(b) ? b : a;
  }
};
struct sum_modulo {
  std::int32_t m;
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(((a + b) % m + m) % m);
  }
};

template <class Op>
struct by_user {
  static constexpr reduce_kind which = reduce_kind::user;
  static Op for_rank(int) {
    if constexpr (std::is_same_v<Op, sum_modulo>) {
      return sum_modulo{7};
    } else {
      return Op{};
    }
  }
  template <class C>
  static C prepared(C x, int) {
    return x;
  }
  template <class C>
  static C both(C a, C b) {
    return for_rank(0)(a, b);
  }
};

// ---- the cases ----

constexpr std::size_t period = 840;  // of value()

template <class T, class F>
bytes elements_of(std::size_t count, F element) {
  bytes made(count * sizeof(T));
  const std::span<T> elements(reinterpret_cast<T*>(made.data()), count);
  for (std::size_t i = 0; i < std::min(count, period); ++i) elements[i] = element(i);
  for (std::size_t i = period; i < count; i += period)
    std::copy_n(elements.begin(), std::min(count - i, period), elements.subspan(i).begin());
  return made;
}

template <class T>
bytes input_of(int rank, std::size_t count) {
  return elements_of<T>(count, [rank](std::size_t i) { return value<T>(rank, i); });
}

template <class T, class Reduction>
bytes answer_of(int ranks, std::size_t count) {
  using C = wide<T>;
  return elements_of<T>(count, [ranks](std::size_t i) {
    C all = Reduction::prepared(static_cast<C>(value<T>(0, i)), 0);
    for (int r = 1; r < ranks; ++r)
      all = static_cast<C>(Reduction::both(all, Reduction::prepared(static_cast<C>(value<T>(r, i)), r)));
    if constexpr (Reduction::which == reduce_kind::avg) {
      if constexpr (is_complex_v<T>) {
        const auto n = static_cast<typename T::value_type>(ranks);
        all = C(all.real() / n, all.imag() / n);
      } else {
        all = all / static_cast<C>(ranks);
      }
    }
    return static_cast<T>(all);
  });
}

template <class T>
constexpr std::size_t index_in_element_types = []<class... All>(std::type_identity<std::tuple<All...>>) {
  std::size_t before = 0;
  static_cast<void>((... || (std::is_same_v<T, All> || (++before, false))));
  return before;
}(std::type_identity<element_types>());

template <class T, class Reduction>
detail::reduction reduction_of(const communicator& world) {
  std::span<T> none;
  return world.all_reduce(none, Reduction::for_rank(world.rank())).what().op;
}

template <class T, class Reduction>
one_case made(const std::string& name) {
  one_case c;
  c.name = name + " of " + name_of_elements<T>();
  c.element_type = index_in_element_types<T>;
  c.element_bytes = sizeof(T);
  c.has_scans = Reduction::which != reduce_kind::avg;
  if (Reduction::which == reduce_kind::product && is_complex_v<T>) c.most_ranks = 8;
  c.input = input_of<T>;
  c.answer = answer_of<T, Reduction>;
  c.reduction = reduction_of<T, Reduction>;
  return c;
}

template <class T>
void add(std::vector<one_case>& all) {
  constexpr bool whole = std::is_integral_v<T>;
  constexpr bool has_order = !is_complex_v<T> && !std::is_same_v<T, place>;
  if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, place>) {
    all.push_back(made<T, built_in<std::remove_const_t<decltype(sum)>>>(name_of(sum.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(product)>>>(name_of(product.kind)));
    all.push_back(made<T, premultiplied<std::conditional_t<whole, int, double>>>("premul_sum"));
    if constexpr (!whole)
      all.push_back(made<T, built_in<std::remove_const_t<decltype(avg)>>>(name_of(avg.kind)));
  }
  if constexpr (has_order) {
    all.push_back(made<T, built_in<std::remove_const_t<decltype(tutti::min)>>>(name_of(tutti::min.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(tutti::max)>>>(name_of(tutti::max.kind)));
  }
  if constexpr (whole) {
    all.push_back(made<T, built_in<std::remove_const_t<decltype(band)>>>(name_of(band.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(bor)>>>(name_of(bor.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(bxor)>>>(name_of(bxor.kind)));
  }
  all.push_back(made<T, by_user<farther_out>>("a callable"));
}

}  // namespace

const std::vector<one_case>& cases() {
  static const std::vector<one_case> all = [] {
    std::vector<one_case> v;
    []<class... T>(std::vector<one_case>& to, std::type_identity<std::tuple<T...>>) { (add<T>(to), ...); }(
        v, std::type_identity<element_types>());
    v.push_back(made<std::int32_t, by_user<sum_modulo>>("a callable with state"));
    return v;
  }();
  return all;
}

one_case sum_of_floats() { return made<float, built_in<std::remove_const_t<decltype(sum)>>>("sum"); }

}  // namespace tutti::test::reductions
