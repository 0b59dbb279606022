// SPDX-License-Identifier: Apache-2.0
// Element types and the operations that reduce them.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tutti {

// How elements are reduced and compared between ranks; everything that is not arithmetic travels as `opaque`.
enum class element_type : std::uint8_t {
  opaque, boolean, int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32, float64
};

enum class reduce_kind : std::uint8_t { none, sum, product, min, max, band, bor, bxor, avg, user };

const char* name_of(element_type type) noexcept;
const char* name_of(reduce_kind kind) noexcept;

namespace detail {

template <class T>
consteval element_type element_type_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return element_type::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? element_type::int8 : element_type::uint8;
    if constexpr (sizeof(T) == 2) return is_signed ? element_type::int16 : element_type::uint16;
    if constexpr (sizeof(T) == 4) return is_signed ? element_type::int32 : element_type::uint32;
    if constexpr (sizeof(T) == 8) return is_signed ? element_type::int64 : element_type::uint64;
  } else if constexpr (std::is_same_v<T, float>) {
    return element_type::float32;
  } else if constexpr (std::is_same_v<T, double>) {
    return element_type::float64;
  }
  return element_type::opaque;
}

// One reduction, ready to run on type-erased elements: out[i] = op(left[i], right[i]); `out` may be either input.
struct reduction {
  using function = void (*)(const reduction& self, const void* left, const void* right, void* out, std::size_t count);

  reduce_kind kind = reduce_kind::none;
  function combine = nullptr;   // set for `user` only; the built-in ones are found by kind and element type
  std::array<std::byte, 16> state{};
};

template <reduce_kind Kind>
struct built_in_op {
  static constexpr reduce_kind kind = Kind;
};

template <class Op>
concept built_in = requires { { Op::kind } -> std::convertible_to<reduce_kind>; };

template <class Op, class T>
concept user_op = !built_in<Op> && std::is_trivially_copyable_v<T> &&
                  requires(const Op& op, const T& a, const T& b) { { op(a, b) } -> std::convertible_to<T>; };

template <class Op, class T>
consteval bool reduces() {
  constexpr element_type type = element_type_of<T>();
  if constexpr (built_in<Op>) {
    if constexpr (type == element_type::opaque) return false;
    constexpr reduce_kind kind = Op::kind;
    constexpr bool floating = std::is_floating_point_v<T>;
    if constexpr (kind == reduce_kind::band || kind == reduce_kind::bor || kind == reduce_kind::bxor) return !floating;
    if constexpr (kind == reduce_kind::avg) return floating;
    if constexpr (kind == reduce_kind::sum || kind == reduce_kind::product) return type != element_type::boolean;
    return true;
  } else {
    return user_op<Op, T>;
  }
}

template <class Op, class T>
reduction make_reduction(const Op& op) noexcept {
  reduction r;
  if constexpr (built_in<Op>) {
    r.kind = Op::kind;
  } else {
    static_assert(std::is_trivially_copyable_v<Op> && sizeof(Op) <= sizeof(reduction::state),
                  "tutti: a user's reduction must be trivially copyable and at most 16 bytes: capture a pointer");
    r.kind = reduce_kind::user;
    std::memcpy(r.state.data(), static_cast<const void*>(&op), sizeof(Op));
    r.combine = [](const reduction& self, const void* left, const void* right, void* out, std::size_t count) {
      alignas(Op) std::byte storage[sizeof(Op)];
      std::memcpy(storage, self.state.data(), sizeof(Op));
      const Op& f = *reinterpret_cast<const Op*>(storage);
      const T* a = static_cast<const T*>(left);
      const T* b = static_cast<const T*>(right);
      T* o = static_cast<T*>(out);
      for (std::size_t i = 0; i < count; ++i) o[i] = static_cast<T>(f(a[i], b[i]));
    };
  }
  return r;
}

}  // namespace detail

// The reductions. Every element is reduced in one order, the same on all ranks, so that the results are bit for bit the
// same everywhere. `avg` divides the sum by the number of ranks and exists for floating-point elements; band, bor and
// bxor exist for integers and bool. Any commutative and associative callable T(T, T) is a reduction too: it must be
// trivially copyable and at most 16 bytes, and is called in one fixed order of ranks.
inline constexpr detail::built_in_op<reduce_kind::sum> sum{};
inline constexpr detail::built_in_op<reduce_kind::product> product{};
inline constexpr detail::built_in_op<reduce_kind::min> min{};
inline constexpr detail::built_in_op<reduce_kind::max> max{};
inline constexpr detail::built_in_op<reduce_kind::band> band{};
inline constexpr detail::built_in_op<reduce_kind::bor> bor{};
inline constexpr detail::built_in_op<reduce_kind::bxor> bxor{};
inline constexpr detail::built_in_op<reduce_kind::avg> avg{};

}  // namespace tutti
