// SPDX-License-Identifier: Apache-2.0
// How types of other libraries become buffers of operations.
#pragma once

#include <tutti/detail/element_type.hpp>
#include <tutti/extend/version.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tutti::extend::inline v1 {

// A buffer without its static type. The library writes through `data` only where the operation receives.
struct buffer_view {
  void* data = nullptr;
  std::size_t count = 0;  // elements
  std::uint32_t element_bytes = 0;
  element_type type = element_type::opaque;

  std::size_t bytes() const noexcept { return count * element_bytes; }
};

// Whether they have a byte in common.
inline bool overlap(const buffer_view& a, const buffer_view& b) noexcept {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
  return a.bytes() > 0 && b.bytes() > 0 && begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

// Memory that only an executor accesses: a type with `value_type`, `device_span_type` (a span of all of it, which has
// `element_type`), data() and size(). Operations on it take a stream.
template <class B>
concept device_memory = requires { typename std::remove_cvref_t<B>::device_span_type; };

// The owner of the buffer's memory, as its memory() returns it: kept until the executor has finished. Null without that
// member function: the program keeps the memory.
template <class B>
std::shared_ptr<const void> owner_of(const B& buffer) noexcept {
  if constexpr (requires {
                  { buffer.memory() } -> std::convertible_to<std::shared_ptr<const void>>;
                })
    return buffer.memory();
  else
    return nullptr;
}

// An owner of memory whose element type is known at run time, for which its library specialises this, with static
// functions. `view(b)` returns a buffer_view. `keep(from, b...)`, where `from` is a maybe_on_stream, returns the part of
// a call that keeps b, or a list of them, alive. `reduction(op, type)` returns the reduction for such elements, and
// `piece(b, offset, n)` a tensor of n of them.
template <class T>
struct tensor_access {};
template <class B>
concept tensor =
    requires(const std::remove_cvref_t<B>& b) { tensor_access<std::remove_cvref_t<B>>::view(b); };

}  // namespace tutti::extend::inline v1
