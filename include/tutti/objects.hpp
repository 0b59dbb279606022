// SPDX-License-Identifier: Apache-2.0
// Collectives of objects that are not flat buffers: strings, containers of the standard library and the like, pairs,
// optionals, and types with a serializer.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

// Converts objects of T to bytes and back: specialise it for your own types. `read` gets the bytes that `write`
// wrote, or bytes of a hostile peer: it must not trust lengths that it reads, as object_reader does not.
template <class T, class = void>
struct serializer;

// Collects the bytes of an object.
class object_writer {
 public:
  // Appends `n` bytes.
  void bytes(const void* from, std::size_t n);
  // Writes `v` by its serializer.
  template <class T>
  void value(const T& v) {
    serializer<T>::write(v, *this);
  }
  // The bytes written so far.
  const std::vector<std::byte>& written() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads an object from bytes. Never reads past the end.
// Errors: throws errc::protocol if the bytes do not fit the type.
class object_reader {
 public:
  explicit object_reader(std::span<const std::byte> from) noexcept : rest_(from) {}
  // Reads `n` bytes.
  void bytes(void* to, std::size_t n);
  // Reads an object by serializer<T>.
  template <class T>
  T value() {
    return serializer<T>::read(*this);
  }
  // Reads a number of elements and checks that the rest can hold that many of at least `each` bytes.
  std::size_t count(std::size_t each);
  // The number of bytes that have not been read.
  std::size_t left() const noexcept { return rest_.size(); }
  // Whether all bytes have been read.
  bool at_end() const noexcept { return rest_.empty(); }
  [[noreturn]] static void refuse();

 private:
  std::span<const std::byte> rest_;
};

namespace detail {

// Whether one of the first eight members of an aggregate can be made from a Probe.
template <class T, class Probe>
concept has_member_from =
    std::is_aggregate_v<T> &&
    (requires { T{Probe()}; } || requires { T{{}, Probe()}; } || requires { T{{}, {}, Probe()}; } ||
     requires { T{{}, {}, {}, Probe()}; } || requires { T{{}, {}, {}, {}, Probe()}; } ||
     requires { T{{}, {}, {}, {}, {}, Probe()}; } || requires { T{{}, {}, {}, {}, {}, {}, Probe()}; } ||
     requires { T{{}, {}, {}, {}, {}, {}, {}, Probe()}; });

// Converts to views and to aggregates that contain one, and thereby to an optional or variant of these.
struct view_probe {
  template <class U>
    requires(std::ranges::enable_view<U> || has_member_from<U, view_probe>)
  operator U() const;
};

// A view, or an array, optional, variant or aggregate that contains one. Members of other classes are not found.
template <class T>
concept holds_view = std::is_convertible_v<view_probe, T>;

}  // namespace detail

template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_empty_v<T>)
struct serializer<T> {
  static_assert(!detail::holds_view<T>,
                "tutti: a view (std::string_view, std::span) points to memory of this rank, also inside "
                "another object; pass one that owns its elements, such as std::string or std::vector");
  static void write(const T& v, object_writer& to) { to.bytes(&v, sizeof v); }
  static T read(object_reader& from) {
    alignas(T) std::byte storage[sizeof(T)];
    from.bytes(storage, sizeof storage);
    T v = *reinterpret_cast<const T*>(storage);
    return v;
  }
};

namespace detail {

// A standard container, or one like it: it owns the elements that it is made of one by one.
template <class C>
concept container = !std::is_trivially_copyable_v<C> && !std::ranges::enable_view<C> && requires(C c) {
  typename C::allocator_type;
  c.insert(c.end(), *c.begin());
};

// The number of elements of a container, then each. One that writes no bytes gets one: the reader trusts no number of
// elements that there are no bytes for.
template <class C>
struct container_serializer {
  using element = typename C::value_type;
  static constexpr bool in_one_piece = std::is_arithmetic_v<element> && requires(C c) { *c.data(); };

  static void write(const C& v, object_writer& to) {
    to.value(static_cast<std::uint64_t>(v.size()));
    if constexpr (in_one_piece) {
      to.bytes(v.data(), v.size() * sizeof(element));
    } else {
      for (const auto& each : v) {
        const std::size_t before = to.written().size();
        to.value<element>(each);
        if (to.written().size() == before) to.value(std::uint8_t{0});
      }
    }
  }
  static C read(object_reader& from) {
    if constexpr (in_one_piece) {
      C v(from.count(sizeof(element)), element());
      from.bytes(v.data(), v.size() * sizeof(element));
      return v;
    } else {
      C v;
      for (std::size_t n = from.count(1); n > 0; --n) {
        const std::size_t before = from.left();
        if constexpr (requires(element e) { v.push_back(std::move(e)); })
          v.push_back(from.value<element>());
        else
          v.insert(v.end(), from.value<element>());
        if (from.left() == before) from.value<std::uint8_t>();
      }
      return v;
    }
  }
};

}  // namespace detail

template <detail::container C>
struct serializer<C> : detail::container_serializer<C> {};

template <class A, class B>
struct serializer<std::pair<A, B>> {
  static void write(const std::pair<A, B>& v, object_writer& to) {
    to.template value<std::remove_const_t<A>>(v.first);
    to.template value<B>(v.second);
  }
  static std::pair<A, B> read(object_reader& from) {
    std::remove_const_t<A> first = from.value<std::remove_const_t<A>>();
    return {std::move(first), from.value<B>()};
  }
};

template <class T>
struct serializer<std::optional<T>> {
  static void write(const std::optional<T>& v, object_writer& to) {
    to.value(static_cast<std::uint8_t>(v.has_value()));
    if (v) to.template value<T>(*v);
  }
  static std::optional<T> read(object_reader& from) {
    if (from.value<std::uint8_t>() == 0) return std::nullopt;
    return from.value<T>();
  }
};

// The default limit of an object, in serialised bytes.
inline constexpr std::size_t object_limit = std::size_t{64} << 20;

namespace detail {

template <class T>
std::vector<std::byte> to_bytes(const T& v) {
  object_writer to;
  to.value<T>(v);
  return to.written();
}
template <class T>
T from_bytes(std::span<const std::byte> bytes) {
  object_reader from(bytes);
  T v = from.value<T>();
  if (!from.at_end()) object_reader::refuse();
  return v;
}

// The bytes of all ranks' objects, in rank order. Both are empty on ranks that do not get them.
struct gathered_bytes {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> lengths;
};
task<std::vector<std::byte>> broadcast_bytes(communicator c, std::vector<std::byte> mine, int root,
                                             std::size_t limit);
// Without a root, every rank gets them.
task<gathered_bytes> gather_bytes(communicator c, std::vector<std::byte> mine, std::optional<int> root,
                                  std::size_t limit);

template <class T>
task<std::vector<T>> gather_objects(communicator c, T value, std::optional<int> root, std::size_t limit) {
  const gathered_bytes all = co_await gather_bytes(std::move(c), detail::to_bytes(value), root, limit);
  std::vector<T> values;
  std::size_t at = 0;
  for (const std::size_t n : all.lengths) {
    values.push_back(detail::from_bytes<T>({all.bytes.data() + at, n}));
    at += n;
  }
  co_return values;
}

}  // namespace detail

// ---- collectives of objects ----
//
// Every rank of `c` calls with the same T, root and limit. Received bytes are never executed.
// Errors: errc::invalid_argument on all ranks for an object longer than `limit`; then nothing is moved.
// Cancellation: as the collectives inside.
// Cost: two collectives (lengths, then bytes), one copy and some allocations per rank.

// Returns `value` of `root` on every rank.
template <class T>
task<T> broadcast_object(communicator c, T value, int root, std::size_t limit = object_limit) {
  const bool is_root = c.rank() == root;
  std::vector<std::byte> mine;
  if (is_root) mine = detail::to_bytes(value);
  const std::vector<std::byte> bytes =
      co_await detail::broadcast_bytes(std::move(c), std::move(mine), root, limit);
  if (!is_root) value = detail::from_bytes<T>(bytes);
  co_return value;
}

// Returns the `value` of every rank, in rank order, on every rank.
template <class T>
task<std::vector<T>> all_gather_object(communicator c, T value, std::size_t limit = object_limit) {
  return detail::gather_objects<T>(std::move(c), std::move(value), std::nullopt, limit);
}

// Returns the `value` of every rank, in rank order, on `root`; an empty vector on other ranks.
template <class T>
task<std::vector<T>> gather_object(communicator c, T value, int root, std::size_t limit = object_limit) {
  return detail::gather_objects<T>(std::move(c), std::move(value), root, limit);
}

}  // namespace tutti
