// SPDX-License-Identifier: Apache-2.0
// Element types and the reductions of elements.
#pragma once

#include <tutti/detail/element_type.hpp>
#include <tutti/half.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <typeinfo>

namespace tutti {

// The kinds of reductions; see `sum` and the constants below it.
enum class reduce_kind : std::uint8_t {
  none,
  sum,
  product,
  min,
  max,
  band,
  bor,
  bxor,
  avg,
  user,
  premul_sum
};

namespace detail {

#if defined(__FLT16_MANT_DIG__) && (defined(__clang__) || defined(__SSE2__) || __GNUC__ >= 13)
__extension__ typedef _Float16 compiler_float16;  // the type of std::float16_t; NOLINT(modernize-use-using)
#else
using compiler_float16 = float16;
#endif

// std::complex, without its header, which takes long to compile; and classes of the same form, such as thrust::complex.
template <class T>
concept complex_number = std::is_trivially_copyable_v<T> && sizeof(T) == 2 * sizeof(typename T::value_type) &&
                         requires(const T& z, typename T::value_type part) {
                           T(part, part);
                           { z.real() } -> std::same_as<typename T::value_type>;
                           { z.imag() } -> std::same_as<typename T::value_type>;
                           { z* z } -> std::convertible_to<T>;
                         };

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
  } else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, compiler_float16>) {
    return element_type::float16;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return element_type::bfloat16;
  } else if constexpr (complex_number<T>) {
    if constexpr (std::is_same_v<typename T::value_type, float>) return element_type::complex_float32;
    if constexpr (std::is_same_v<typename T::value_type, double>) return element_type::complex_float64;
  }
  return element_type::opaque;
}

constexpr bool is_integer(element_type type) noexcept {
  return type >= element_type::int8 && type <= element_type::uint64;
}
constexpr bool is_half(element_type type) noexcept {
  return type == element_type::float16 || type == element_type::bfloat16;
}
constexpr bool is_floating(element_type type) noexcept {
  return type == element_type::float32 || type == element_type::float64 || is_half(type);
}
constexpr bool is_complex(element_type type) noexcept {
  return type == element_type::complex_float32 || type == element_type::complex_float64;
}

// Names as error texts show them, and sizes in bytes, by element_type. 0: only the caller knows it.
struct element_row {
  const char* name;
  std::size_t bytes;
};
inline constexpr element_row element_rows[] = {
    {"bytes", 0},   {"bool", 1},     {"int8", 1},           {"uint8", 1},
    {"int16", 2},   {"uint16", 2},   {"int32", 4},          {"uint32", 4},
    {"int64", 8},   {"uint64", 8},   {"float", 4},          {"double", 8},
    {"float16", 2}, {"bfloat16", 2}, {"complex<float>", 8}, {"complex<double>", 16}};
static_assert(std::size(element_rows) == static_cast<std::size_t>(element_type::complex_float64) + 1);
constexpr std::size_t bytes_of(element_type type) noexcept {
  return element_rows[static_cast<std::size_t>(type)].bytes;
}

// How the library's loops over elements (coll/reduce.hpp) treat them.
enum class loops_over : std::uint8_t {
  nothing,         // there is no loop
  elements,        // as they are
  unsigned_ones,   // integers as unsigned ones, which have the same bits and may overflow
  unsigned_reals,  // likewise, and complex numbers as two real ones
  bytes
};

// All properties that differ among reductions; code that depends on one reads the row.
struct reduction_row {
  reduce_kind kind;
  const char* name;
  bool integers, floating, complex, boolean;  // for which elements it is defined
  bool rounds;                                // so partial results of halves are kept as floats
  loops_over loops;
};

namespace rows {
using x = reduce_kind;
using o = loops_over;
inline constexpr bool yes = true, no = false;

// clang-format off
inline constexpr reduction_row reduction_rows[] = {
// kind             name          integers floating complex boolean rounds loops over
  {x::none,         "none",       no,      no,      no,     no,     no,    o::nothing},
  {x::sum,          "sum",        yes,     yes,     yes,    no,     yes,   o::unsigned_reals},
  {x::product,      "product",    yes,     yes,     yes,    no,     yes,   o::unsigned_ones},
  {x::min,          "min",        yes,     yes,     no,     yes,    no,    o::elements},
  {x::max,          "max",        yes,     yes,     no,     yes,    no,    o::elements},
  {x::band,         "band",       yes,     no,      no,     yes,    no,    o::bytes},
  {x::bor,          "bor",        yes,     no,      no,     yes,    no,    o::bytes},
  {x::bxor,         "bxor",       yes,     no,      no,     yes,    no,    o::bytes},
  {x::avg,          "avg",        no,      yes,     yes,    no,     yes,   o::unsigned_reals},
  {x::user,         "user's",     no,      no,      no,     no,     no,    o::nothing},
  // As a sum, after the multiplication.
  {x::premul_sum,   "premul_sum", yes,     yes,     yes,    no,     yes,   o::nothing},
};
// clang-format on
}  // namespace rows

using rows::reduction_rows;

consteval bool reductions_are_in_order() noexcept {
  for (std::size_t i = 0; i < std::size(reduction_rows); ++i)
    if (static_cast<std::size_t>(reduction_rows[i].kind) != i) return false;
  return true;
}
static_assert(reductions_are_in_order());

constexpr const reduction_row& row_of(reduce_kind kind) noexcept {
  return reduction_rows[static_cast<std::size_t>(kind)];
}

// A reduction of type-erased elements. A user's one brings its loop, where `out` may be one of the inputs:
// out[i] = op(...op(inputs[0][i], inputs[1][i])..., inputs[n-1][i]).
struct reduction {
  using function = void (*)(const reduction& self, const void* const* inputs, std::size_t n, void* out,
                            std::size_t count);

  reduce_kind kind = reduce_kind::none;
  std::uint16_t callable = 0;         // for `user` only: identity_of its type
  function fold = nullptr;            // for `user` only
  std::array<std::byte, 16> state{};  // the user's callable, or premul_sum's factor as `factor_of` has it
};

// Whether elements of this type are reduced so. Not of a user's reduction, which has its own type.
constexpr bool fits(reduce_kind kind, element_type type) noexcept {
  const reduction_row& row = row_of(kind);
  return (row.integers && is_integer(type)) || (row.floating && is_floating(type)) ||
         (row.complex && is_complex(type)) || (row.boolean && type == element_type::boolean);
}

template <reduce_kind Kind>
struct built_in_op {
  static constexpr reduce_kind kind = Kind;
};

template <class Factor>
struct premul_sum_op {
  static constexpr reduce_kind kind = reduce_kind::premul_sum;
  Factor factor;
};

template <class Op>
concept built_in = requires {
  { Op::kind } -> std::convertible_to<reduce_kind>;
};

template <class Op, class T>
concept user_op =
    !built_in<Op> && std::is_trivially_copyable_v<T> && requires(const Op& op, const T& a, const T& b) {
      { op(a, b) } -> std::convertible_to<T>;
    };

template <class Op, class T>
consteval bool reduces() {
  constexpr element_type type = element_type_of<T>();
  if constexpr (built_in<Op>) {
    if constexpr (requires(Op op) { op.factor; })
      if (is_integer(type) && !std::is_integral_v<decltype(Op::factor)>) return false;
    return fits(Op::kind, type);
  } else {
    return user_op<Op, T>;
  }
}

// The type that premul_sum's factor is converted to: the elements', the real one if complex, float for halves.
template <class T, element_type Type = element_type_of<T>()>
using factor_of = std::conditional_t<is_half(Type) || Type == element_type::complex_float32, float,
                                     std::conditional_t<Type == element_type::complex_float64, double, T>>;

// Of memory of the library that has elements of a user's reduction.
inline constexpr std::size_t element_alignment = 64;

// Results of a user's reduction that are longer than this are made on the heap.
inline constexpr std::size_t longest_on_stack = 16 * 1024;

template <class Op, class T>
void fold_by_user(const reduction& self, const void* const* inputs, std::size_t n, void* out,
                  std::size_t count) {
  alignas(Op) std::byte storage[sizeof(Op)];
  std::memcpy(storage, self.state.data(), sizeof(Op));
  const Op& f = *reinterpret_cast<const Op*>(storage);
  const auto input = [inputs](std::size_t k) { return static_cast<const T*>(inputs[k]); };
  T* o = static_cast<T*>(out);
  if constexpr (sizeof(T) > longest_on_stack) {
    struct element {
      alignas(T) std::byte bytes[sizeof(T)];
    };
    const std::unique_ptr<element[]> results(new element[2]);
    for (std::size_t i = 0; i < count; ++i) {
      const T* all = input(0) + i;
      for (std::size_t k = 1; k < n; ++k) all = new (results[k % 2].bytes) T(f(*all, input(k)[i]));
      std::memmove(o + i, all, sizeof(T));
    }
    return;
  } else if (n == 2) {
    const T* a = input(0);
    const T* b = input(1);
    for (std::size_t i = 0; i < count; ++i) o[i] = static_cast<T>(f(a[i], b[i]));
    return;
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      T all = input(0)[i];
      for (std::size_t k = 1; k < n; ++k) all = static_cast<T>(f(all, input(k)[i]));
      o[i] = all;
    }
  }
}

// A hash of the type's name, the same in all processes of one executable. (A compiler could hash
// `__PRETTY_FUNCTION__`, but that is the same for two lambdas of one function.)
inline std::uint16_t identity_of(const std::type_info& type) noexcept {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char* at = type.name(); *at != 0; ++at)
    hash = (hash ^ static_cast<unsigned char>(*at)) * 16777619U;
  return static_cast<std::uint16_t>(hash ^ (hash >> 16));
}

// Makes the reduction `op` for elements of T. Compiles only where they fit, and otherwise says what fits.
template <class Op, class T>
reduction make_reduction(const Op& op) noexcept {
  static_assert(
      reduces<Op, T>(),
      "tutti: this reduction does not fit this element type: sum, product and premul_sum need numbers "
      "(premul_sum of integers an integer factor), avg floating-point or complex numbers, min and max "
      "elements with an order (not complex), band/bor/bxor integers or bool; for other types pass a callable "
      "T(T, T)");
  reduction r;
  if constexpr (!reduces<Op, T>()) {
    return r;  // rejected above; this avoids further errors below
  } else if constexpr (built_in<Op>) {
    r.kind = Op::kind;
    if constexpr (Op::kind == reduce_kind::premul_sum) {
      const auto factor = static_cast<factor_of<T>>(op.factor);
      static_assert(sizeof(factor) <= sizeof(reduction::state));
      std::memcpy(r.state.data(), &factor, sizeof(factor));
    }
  } else {
    static_assert(
        std::is_trivially_copyable_v<Op> && sizeof(Op) <= sizeof(reduction::state),
        "tutti: a user's reduction must be trivially copyable and at most 16 bytes: capture a pointer");
    static_assert(alignof(T) <= element_alignment,
                  "tutti: elements of a user's reduction are aligned to 64 bytes at most");
    r.kind = reduce_kind::user;
    static const std::uint16_t callable = identity_of(typeid(Op));
    r.callable = callable;
    r.fold = fold_by_user<Op, T>;
    // A callable without captures has one byte of unspecified value: it is not copied.
    if constexpr (!std::is_empty_v<Op>)
      std::memcpy(r.state.data(), static_cast<const void*>(&op), sizeof(Op));
  }
  return r;
}

}  // namespace detail

// "?" for the type or kind in a damaged record.
constexpr const char* name_of(element_type type) noexcept {
  const auto row = static_cast<std::size_t>(type);
  return row < std::size(detail::element_rows) ? detail::element_rows[row].name : "?";
}
constexpr const char* name_of(reduce_kind kind) noexcept {
  const auto row = static_cast<std::size_t>(kind);
  return row < std::size(detail::reduction_rows) ? detail::reduction_rows[row].name : "?";
}

// The reductions. Each element is reduced in one order: results are bit for bit the same on all ranks.
//
//   sum, product    of integers (which wrap around), floating-point and complex numbers
//   premul_sum(f)   the sum after each element was multiplied by f, an arithmetic value converted to the
//                   type of the elements (real for complex ones); an integer for integers. Each rank
//                   multiplies by the f of its own call.
//   avg             the sum divided by the number of ranks; of floating-point and complex numbers. The sum may
//                   overflow where the average would not: premul_sum(1.0f / size()) divides first, as NCCL's
//                   average does, and differs in the last digit unless the number of ranks is a power of 2.
//   min, max        of everything but complex numbers. NaN if any rank's is; -0 is less than +0.
//   band, bor, bxor
//                   of integers and bool
//
// float16 and bfloat16 are computed as float and rounded at the end. A product of complex numbers is (ac -
// bd, ad + bc), with infinities too. A NaN result is always the positive quiet NaN without a payload.
//
// A callable T(T, T) that is commutative and associative is a reduction too. It must be trivially copyable
// and at most 16 bytes, and is called in one fixed order of ranks. For elements of megabytes it takes const
// references: arguments that it takes by value are on the stack. Elements are aligned to 64 bytes at most.
// Errors: errc::mismatch if ranks pass callables of different types; captures, and the functions that pointers
// name, are not compared. errc::system on all ranks, with the exception's text, if the callable throws.
inline constexpr detail::built_in_op<reduce_kind::sum> sum{};
inline constexpr detail::built_in_op<reduce_kind::product> product{};
inline constexpr detail::built_in_op<reduce_kind::min> min{};
inline constexpr detail::built_in_op<reduce_kind::max> max{};
inline constexpr detail::built_in_op<reduce_kind::band> band{};
inline constexpr detail::built_in_op<reduce_kind::bor> bor{};
inline constexpr detail::built_in_op<reduce_kind::bxor> bxor{};
inline constexpr detail::built_in_op<reduce_kind::avg> avg{};

// The reduction premul_sum(factor); see above.
template <class Factor>
  requires std::is_arithmetic_v<Factor>
constexpr detail::premul_sum_op<Factor> premul_sum(Factor factor) noexcept {
  return {factor};
}

}  // namespace tutti
