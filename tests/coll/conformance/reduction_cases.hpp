// SPDX-License-Identifier: Apache-2.0
// Every element type with each of its reductions and a serial result, on buffers of any memory. Results are
// computed here, from the definitions in reduce_op.hpp, without code of src/.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::test::reductions {

using kind = coll::operation_kind;

// Arguments of a reduction. The kind determines which of them it uses.
struct arguments {
  coll::operation_kind kind{};
  std::span<std::byte> in;  // the same memory as `out` (or its own block there): in place
  std::span<std::byte> out;
  std::span<const std::size_t> counts;
  int root = 0;
  std::vector<std::span<std::byte>> pieces;  // not empty: all_reduce of a list
  std::shared_ptr<void> list;                // objects that must outlive the operation
};

// `Buffers`: host_memory, or another class with the same interface.
template <class Buffers>
struct one_case {
  std::string name;  // "sum of float16"
  std::size_t element_bytes = 0;
  bool has_scans = true;
  // Small whole numbers, so that every order of reducing gives the same exact result.
  bytes (*input)(int rank, std::size_t count) = nullptr;
  // The reduction of ranks 0 to ranks - 1.
  bytes (*answer)(int ranks, std::size_t count) = nullptr;
  operation<> (*call)(const communicator& world, arguments& with, const Buffers& at) = nullptr;
};

// An element that only a user's reduction accepts.
struct place {
  float value;
  std::int32_t rank;
};

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

inline constexpr std::size_t period = 840;  // of value()

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

template <class T, class Reduction, class Buffers>
operation<> call_of(const communicator& world, arguments& with, const Buffers& at) {
  const auto op = Reduction::for_rank(world.rank());
  const auto in = at.template as<const T>(with.in);
  const auto out = at.template as<T>(with.out);
  const bool in_place = with.in.data() == with.out.data() && with.in.size() == with.out.size();
  return at.call([&](const auto&... s) -> operation<> {
    if constexpr (Reduction::which != reduce_kind::avg) {
      if (with.kind == kind::scan) return world.scan(in, out, op, s...);
      if (with.kind == kind::exclusive_scan) return world.exclusive_scan(in, out, op, s...);
    }
    switch (with.kind) {
      case kind::reduce:
        return in_place ? world.reduce(out, op, with.root, s...) : world.reduce(in, out, op, with.root, s...);
      case kind::reduce_scatter:
        return world.reduce_scatter(in, out, op, s...);
      case kind::reduce_scatter_v:
        return world.reduce_scatter_v(in, with.counts, out, op, s...);
      default:
        break;
    }
    if (!with.pieces.empty()) {
      auto list = std::make_shared<std::vector<std::remove_const_t<decltype(out)>>>();
      for (const std::span<std::byte> piece : with.pieces) list->push_back(at.template as<T>(piece));
      with.list = list;
      return world.all_reduce(*list, op, s...);
    }
    return in_place ? world.all_reduce(out, op, s...) : world.all_reduce(in, out, op, s...);
  });
}

template <class T, class Reduction, class Buffers>
one_case<Buffers> made(const std::string& name) {
  one_case<Buffers> c;
  c.name = name + " of " + name_of_elements<T>();
  c.element_bytes = sizeof(T);
  c.has_scans = Reduction::which != reduce_kind::avg;
  c.input = input_of<T>;
  c.answer = answer_of<T, Reduction>;
  c.call = call_of<T, Reduction, Buffers>;
  return c;
}

template <class T, class Buffers>
void add(std::vector<one_case<Buffers>>& all) {
  constexpr bool whole = std::is_integral_v<T>;
  constexpr bool has_order = !is_complex_v<T> && !std::is_same_v<T, place>;
  if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, place>) {
    all.push_back(made<T, built_in<std::remove_const_t<decltype(sum)>>, Buffers>(name_of(sum.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(product)>>, Buffers>(name_of(product.kind)));
    all.push_back(made<T, premultiplied<std::conditional_t<whole, int, double>>, Buffers>("premul_sum"));
    if constexpr (!whole)
      all.push_back(made<T, built_in<std::remove_const_t<decltype(avg)>>, Buffers>(name_of(avg.kind)));
  }
  if constexpr (has_order) {
    all.push_back(
        made<T, built_in<std::remove_const_t<decltype(tutti::min)>>, Buffers>(name_of(tutti::min.kind)));
    all.push_back(
        made<T, built_in<std::remove_const_t<decltype(tutti::max)>>, Buffers>(name_of(tutti::max.kind)));
  }
  if constexpr (whole) {
    all.push_back(made<T, built_in<std::remove_const_t<decltype(band)>>, Buffers>(name_of(band.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(bor)>>, Buffers>(name_of(bor.kind)));
    all.push_back(made<T, built_in<std::remove_const_t<decltype(bxor)>>, Buffers>(name_of(bxor.kind)));
  }
  all.push_back(made<T, by_user<farther_out>, Buffers>("a callable"));
}

template <class Buffers>
const std::vector<one_case<Buffers>>& cases() {
  static const std::vector<one_case<Buffers>> all = [] {
    std::vector<one_case<Buffers>> v;
    add<std::int8_t>(v);
    add<std::uint8_t>(v);
    add<std::int16_t>(v);
    add<std::uint16_t>(v);
    add<std::int32_t>(v);
    add<std::uint32_t>(v);
    add<std::int64_t>(v);
    add<std::uint64_t>(v);
    add<float>(v);
    add<double>(v);
    add<float16>(v);
    add<bfloat16>(v);
    add<std::complex<float>>(v);
    add<std::complex<double>>(v);
    add<bool>(v);
    add<place>(v);
    v.push_back(made<std::int32_t, by_user<sum_modulo>, Buffers>("a callable with state"));
    return v;
  }();
  return all;
}

}  // namespace tutti::test::reductions
