// SPDX-License-Identifier: Apache-2.0
// Buffers that can be sent and received: a contiguous range of trivially copyable elements, one such object,
// memory of a device (tutti/gpu.hpp), or a tensor (tutti/torch.hpp).
#pragma once

#include <tutti/extend/buffer.hpp>
#include <tutti/reduce_op.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>

namespace tutti {
namespace detail {

template <class B>
concept element_range = std::ranges::contiguous_range<B> && std::ranges::sized_range<B> &&
                        std::is_trivially_copyable_v<std::ranges::range_value_t<B>>;

struct any_element {};
// A buffer that may lie in memory of a device.
template <class B>
concept of_device = device_memory<B> || tensor<B>;

template <class B>
concept single_object = !std::ranges::range<B> && std::is_trivially_copyable_v<std::remove_cvref_t<B>> &&
                        !std::is_pointer_v<std::remove_cvref_t<B>> && !device_memory<B>;

template <class B>
consteval auto element_of() {
  if constexpr (tensor<B>) {
    return std::type_identity<any_element>();
  } else if constexpr (device_memory<B>) {
    return std::type_identity<typename std::remove_cvref_t<B>::value_type>();
  } else if constexpr (element_range<B>) {
    return std::type_identity<std::ranges::range_value_t<B>>();
  } else if constexpr (single_object<B>) {
    return std::type_identity<std::remove_cvref_t<B>>();
  }
}

// A range of spans, treated as several buffers.
template <class B>
concept buffer_range =
    std::ranges::contiguous_range<B> && std::ranges::sized_range<B> &&
    (device_memory<std::ranges::range_value_t<B>> || tensor<std::ranges::range_value_t<B>> ||
     (element_range<std::ranges::range_value_t<B>> &&
      std::ranges::borrowed_range<std::ranges::range_value_t<B>>));

// Whether the library may write through B: its elements are not const.
template <class B>
concept writable =
    (element_range<B> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<B>>>) ||
    (single_object<B> && !std::is_const_v<std::remove_reference_t<B>>) ||
    (device_memory<B> && !std::is_const_v<typename std::remove_cvref_t<B>::device_span_type::element_type>) ||
    tensor<B>;

// Whether a B outlives the expression that contains it: an lvalue, or a view such as std::span. Operations
// keep the memory of a device_buffer or a tensor alive.
template <class B>
concept lasting =
    std::is_lvalue_reference_v<B> || std::ranges::borrowed_range<B> || device_memory<B> || tensor<B>;

// Elements per rank, for the uneven forms; and the ranks of a group.
template <class C>
concept count_list = std::is_convertible_v<C, std::span<const std::size_t>>;
template <class R>
concept rank_list = std::is_convertible_v<R, std::span<const int>>;

}  // namespace detail

// Anything that can be sent.
template <class B>
concept Buffer =
    detail::element_range<B> || detail::single_object<B> || detail::device_memory<B> || detail::tensor<B>;

// Anything that can be received into: writable, and an lvalue or a view such as std::span.
template <class B>
concept WritableBuffer = Buffer<B> && detail::writable<B> && detail::lasting<B>;

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
    view.data = const_cast<void*>(static_cast<const void*>(std::ranges::data(buffer)));
    view.count = std::ranges::size(buffer);
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
