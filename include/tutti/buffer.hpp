// SPDX-License-Identifier: Apache-2.0
// Buffers that can be sent and received: a contiguous range of trivially copyable elements, one such object,
// memory of a device (tutti/gpu.hpp), or a tensor (tutti/torch.hpp).
#pragma once

#include <tutti/extend/buffer.hpp>
#include <tutti/reduce_op.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {
namespace detail {

// Elements in one piece of memory. For the usual classes and for objects that is known: the standard's concepts, which come
// with <span>, take long to compile for each type, and <ranges> takes longer still.
template <class B>
inline constexpr bool is_known_piece = false;
template <class T, class A>
inline constexpr bool is_known_piece<std::vector<T, A>> = true;
template <class A>
inline constexpr bool is_known_piece<std::vector<bool, A>> = false;
template <class T, std::size_t N>
inline constexpr bool is_known_piece<std::array<T, N>> = true;
template <class T, std::size_t N>
inline constexpr bool is_known_piece<std::span<T, N>> = true;
template <class T, std::size_t N>
inline constexpr bool is_known_piece<T[N]> = true;

template <class B>
consteval bool is_piece() {
  if constexpr (is_known_piece<std::remove_cvref_t<B>>)
    return true;
  else if constexpr (std::is_scalar_v<std::remove_cvref_t<B>>)
    return false;
  else
    return std::ranges::contiguous_range<B> && std::ranges::sized_range<B>;
}

template <class B>
  requires(is_piece<B>())
constexpr auto* data_of(B& range) noexcept {
  if constexpr (is_known_piece<std::remove_cv_t<B>>)
    return std::data(range);
  else
    return std::ranges::data(range);
}
template <class B>
  requires(is_piece<B>())
constexpr std::size_t count_of(B& range) noexcept {
  if constexpr (is_known_piece<std::remove_cv_t<B>>)
    return std::size(range);
  else
    return std::ranges::size(range);
}
template <class B>
using reference_in = decltype(*data_of(std::declval<std::remove_reference_t<B>&>()));
template <class B>
using value_in = std::remove_cvref_t<reference_in<B>>;

// What a type is as a buffer.
enum class buffer_form : std::uint8_t { none, elements, object, device, tensor };
template <class B>
consteval buffer_form form_of() {
  using bare = std::remove_cvref_t<B>;
  if constexpr (tensor<B>)
    return buffer_form::tensor;
  else if constexpr (device_memory<B>)
    return buffer_form::device;
  else if constexpr (is_piece<B>())
    return std::is_trivially_copyable_v<value_in<B>> ? buffer_form::elements : buffer_form::none;
  else if constexpr (!std::is_trivially_copyable_v<bare> || std::is_pointer_v<bare>)
    return buffer_form::none;
  else if constexpr (std::is_scalar_v<bare>)
    return buffer_form::object;
  else
    return std::ranges::range<B> ? buffer_form::none : buffer_form::object;
}
template <class B>
concept element_range = form_of<B>() == buffer_form::elements;

struct any_element {};
// A buffer that may lie in memory of a device.
template <class B>
concept of_device = device_memory<B> || tensor<B>;

template <class B>
consteval auto element_of() {
  if constexpr (tensor<B>) {
    return std::type_identity<any_element>();
  } else if constexpr (device_memory<B>) {
    return std::type_identity<typename std::remove_cvref_t<B>::value_type>();
  } else if constexpr (element_range<B>) {
    return std::type_identity<value_in<B>>();
  } else if constexpr (form_of<B>() == buffer_form::object) {
    return std::type_identity<std::remove_cvref_t<B>>();
  }
}

// Whether a B outlives the expression that contains it: an lvalue, or a view such as std::span. Operations
// keep the memory of a device_buffer or a tensor alive.
template <class B>
consteval bool outlives_expression() {
  if constexpr (std::is_lvalue_reference_v<B> || device_memory<B> || tensor<B>)
    return true;
  else
    return std::ranges::borrowed_range<B>;
}
template <class B>
concept lasting = outlives_expression<B>();

// A range of spans, treated as several buffers.
template <class B>
consteval bool has_buffers() {
  if constexpr (!is_piece<B>())
    return false;
  else if constexpr (element_range<value_in<B>>)
    return std::ranges::borrowed_range<value_in<B>>;
  else
    return of_device<value_in<B>>;
}
template <class B>
concept buffer_range = has_buffers<B>();

// Whether the library may write through B: its elements are not const.
template <class B>
consteval bool is_writable() {
  if constexpr (element_range<B>)
    return !std::is_const_v<std::remove_reference_t<reference_in<B>>>;
  else if constexpr (device_memory<B>)
    return !std::is_const_v<typename std::remove_cvref_t<B>::device_span_type::element_type>;
  else
    return tensor<B> || !std::is_const_v<std::remove_reference_t<B>>;
}

// Elements per rank, for the uneven forms; and the ranks of a group.
template <class C>
concept count_list = std::is_convertible_v<C, std::span<const std::size_t>>;
template <class R>
concept rank_list = std::is_convertible_v<R, std::span<const int>>;

}  // namespace detail

// Anything that can be sent.
template <class B>
concept Buffer = detail::form_of<B>() != detail::buffer_form::none;

// Anything that can be received into: writable, and an lvalue or a view such as std::span.
template <class B>
concept WritableBuffer = Buffer<B> && detail::is_writable<B>() && detail::lasting<B>;

// The element type of a buffer; any_element for a tensor.
template <class B>
using element_of_t = typename decltype(detail::element_of<std::remove_reference_t<B>>())::type;

namespace detail {

template <class B>
consteval auto span_of_buffer() {
  if constexpr (tensor<B>) {
    return std::type_identity<std::remove_cvref_t<B>>();
  } else if constexpr (device_memory<B>) {
    return std::type_identity<typename std::remove_cvref_t<B>::device_span_type>();
  } else {
    return std::type_identity<std::span<element_of_t<B>>>();
  }
}
template <class B>
using span_of = typename decltype(span_of_buffer<B>())::type;

template <class B>
buffer_view view_of(B& buffer) noexcept {
  if constexpr (tensor<B>) return tensor_access<std::remove_cvref_t<B>>::view(buffer);
  using T = element_of_t<B>;
  buffer_view view;
  if constexpr (element_range<B>) {
    view.data = const_cast<void*>(static_cast<const void*>(data_of(buffer)));
    view.count = count_of(buffer);
  } else if constexpr (device_memory<B>) {
    view.data = const_cast<void*>(static_cast<const void*>(buffer.data()));
    view.count = buffer.size();
  } else {
    view.data = const_cast<void*>(static_cast<const void*>(std::addressof(buffer)));
    view.count = 1;
  }
  view.element_bytes = sizeof(T);
  view.type = element_type_of<T>();
  return view;
}

}  // namespace detail
}  // namespace tutti
