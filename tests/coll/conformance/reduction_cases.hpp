// SPDX-License-Identifier: Apache-2.0
// Every element type with each of its reductions and a serial result, on buffers of any memory.
#pragma once

#include "coll/conformance/worlds.hpp"

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
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

// An element that only a user's reduction accepts.
struct place {
  float value;
  std::int32_t rank;
};

using element_types = std::tuple<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                                 std::uint32_t, std::int64_t, std::uint64_t, float, double, float16, bfloat16,
                                 std::complex<float>, std::complex<double>, bool, place>;

struct one_case {
  std::string name;              // "sum of float16"
  std::size_t element_type = 0;  // index in element_types
  std::size_t element_bytes = 0;
  bool has_scans = true;
  int most_ranks = 64;  // of more ranks, partial results are no longer exact
  // Small whole numbers, so that every order of reducing gives the same exact result.
  bytes (*input)(int rank, std::size_t count) = nullptr;
  // The reduction of ranks 0 to ranks - 1.
  bytes (*answer)(int ranks, std::size_t count) = nullptr;
  // What an all_reduce of this rank makes of the library's value.
  detail::reduction (*reduction)(const communicator& world) = nullptr;
};

const std::vector<one_case>& cases();
one_case sum_of_floats();

// A reduction of every element type.
struct first_of_two {
  template <class T>
  T operator()(T a, T) const {
    return a;
  }
};

// The collective on elements of T, by first_of_two. `Buffers`: host_memory, or another class with the same
// interface.
template <class T, class Buffers>
operation<> form_of(const communicator& world, arguments& with, const Buffers& at) {
  const first_of_two op;
  const auto in = at.template as<const T>(with.in);
  const auto out = at.template as<T>(with.out);
  const bool in_place = with.in.data() == with.out.data() && with.in.size() == with.out.size();
  return at.call([&](const auto&... s) -> operation<> {
    switch (with.kind) {
      case kind::scan:
        return world.scan(in, out, op, s...);
      case kind::exclusive_scan:
        return world.exclusive_scan(in, out, op, s...);
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

// The collective by the reduction of `c`. (A form for each pair of element type and reduction takes long to
// compile.)
template <class Buffers>
operation<> call_of(const one_case& c, const communicator& world, arguments& with, const Buffers& at) {
  using form = operation<> (*)(const communicator&, arguments&, const Buffers&);
  static constexpr auto forms = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<form, sizeof...(I)>{form_of<std::tuple_element_t<I, element_types>, Buffers>...};
  }(std::make_index_sequence<std::tuple_size_v<element_types>>());
  detail::call what = forms[c.element_type](world, with, at).what();
  what.op = c.reduction(world);
  return operation<>(std::move(what));
}

}  // namespace tutti::test::reductions
