// SPDX-License-Identifier: Apache-2.0
#include "coll/reduce.hpp"

#include <cstdint>
#include <type_traits>

namespace tutti::coll {
namespace {

// Unsigned arithmetic for integers: sums and products wrap around instead of being undefined.
template <class T>
struct wrapping {
  using type = T;
};
template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct wrapping<T> {
  // At least `unsigned`: two uint16 would be multiplied as int, which can overflow.
  using type = std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};

template <reduce_kind Kind, class T>
inline T apply(T a, T b) noexcept {
  using W = typename wrapping<T>::type;
  if constexpr (Kind == reduce_kind::sum) return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  if constexpr (Kind == reduce_kind::product) return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  if constexpr (Kind == reduce_kind::min) return b < a ? b : a;
  if constexpr (Kind == reduce_kind::max) return a < b ? b : a;
  if constexpr (Kind == reduce_kind::band) return static_cast<T>(a & b);
  if constexpr (Kind == reduce_kind::bor) return static_cast<T>(a | b);
  if constexpr (Kind == reduce_kind::bxor) return static_cast<T>(a ^ b);
}

template <reduce_kind Kind, class T>
void loop(const void* left, const void* right, void* out, std::size_t count) noexcept {
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  T* o = static_cast<T*>(out);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep   // `out` is one of the inputs or apart from both: each element depends on its own index only
#endif
  for (std::size_t i = 0; i < count; ++i) o[i] = apply<Kind>(a[i], b[i]);
}

template <class T>
void by_kind(reduce_kind kind, const void* left, const void* right, void* out, std::size_t count) noexcept {
  switch (kind) {
    case reduce_kind::min: return loop<reduce_kind::min, T>(left, right, out, count);
    case reduce_kind::max: return loop<reduce_kind::max, T>(left, right, out, count);
    default: break;
  }
  if constexpr (!std::is_same_v<T, bool>) {
    if (kind == reduce_kind::sum || kind == reduce_kind::avg)
      return loop<reduce_kind::sum, T>(left, right, out, count);
    if (kind == reduce_kind::product) return loop<reduce_kind::product, T>(left, right, out, count);
  }
  if constexpr (std::is_integral_v<T>) {
    if (kind == reduce_kind::band) return loop<reduce_kind::band, T>(left, right, out, count);
    if (kind == reduce_kind::bor) return loop<reduce_kind::bor, T>(left, right, out, count);
    if (kind == reduce_kind::bxor) return loop<reduce_kind::bxor, T>(left, right, out, count);
  }
}

template <class T>
void divide(void* data, std::size_t count, int ranks) noexcept {
  T* d = static_cast<T*>(data);
  const T divisor = static_cast<T>(ranks);
  for (std::size_t i = 0; i < count; ++i) d[i] /= divisor;
}

}  // namespace

void combine(const detail::reduction& op, element_type type, const void* left, const void* right, void* out,
             std::size_t count) noexcept {
  if (count == 0) return;
  if (op.combine != nullptr) return op.combine(op, left, right, out, count);
  switch (type) {
    case element_type::boolean: return by_kind<bool>(op.kind, left, right, out, count);
    case element_type::int8: return by_kind<std::int8_t>(op.kind, left, right, out, count);
    case element_type::uint8: return by_kind<std::uint8_t>(op.kind, left, right, out, count);
    case element_type::int16: return by_kind<std::int16_t>(op.kind, left, right, out, count);
    case element_type::uint16: return by_kind<std::uint16_t>(op.kind, left, right, out, count);
    case element_type::int32: return by_kind<std::int32_t>(op.kind, left, right, out, count);
    case element_type::uint32: return by_kind<std::uint32_t>(op.kind, left, right, out, count);
    case element_type::int64: return by_kind<std::int64_t>(op.kind, left, right, out, count);
    case element_type::uint64: return by_kind<std::uint64_t>(op.kind, left, right, out, count);
    case element_type::float32: return by_kind<float>(op.kind, left, right, out, count);
    case element_type::float64: return by_kind<double>(op.kind, left, right, out, count);
    case element_type::opaque: return;   // only user ops reduce these, and they have their own loop
  }
}

void finish(const detail::reduction& op, element_type type, void* data, std::size_t count, int ranks) noexcept {
  if (op.kind != reduce_kind::avg) return;
  if (type == element_type::float32) divide<float>(data, count, ranks);
  if (type == element_type::float64) divide<double>(data, count, ranks);
}

}  // namespace tutti::coll
