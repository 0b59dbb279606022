// SPDX-License-Identifier: Apache-2.0
// Collectives of objects that are not flat buffers: strings, vectors, maps, and types with a serializer.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/error.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <ranges>
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
  void bytes(const void* from, std::size_t n) {
    const auto* const first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + n);
  }
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
  void bytes(void* to, std::size_t n) {
    if (n > rest_.size()) refuse();
    if (n > 0) std::memcpy(to, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }
  // Reads an object by serializer<T>.
  template <class T>
  T value() {
    return serializer<T>::read(*this);
  }
  // Reads a number of elements and checks that the rest can hold that many of at least `each` bytes.
  std::size_t count(std::size_t each) {
    std::uint64_t n = 0;
    bytes(&n, sizeof n);
    if (n > rest_.size() / (each == 0 ? 1 : each)) refuse();
    return n;
  }
  // Whether all bytes have been read.
  bool at_end() const noexcept { return rest_.empty(); }
  [[noreturn]] static void refuse() {
    throw error(errc::protocol,
                "the bytes of an object are not what its type writes; do all ranks run the same program?");
  }

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
    requires(std::ranges::view<U> || has_member_from<U, view_probe>)
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

// The number of elements of a container, then each.
template <class C>
struct container_serializer {
  using element = typename C::value_type;
  static constexpr bool in_one_piece = std::ranges::contiguous_range<C> && std::is_arithmetic_v<element>;

  static void write(const C& v, object_writer& to) {
    to.value(static_cast<std::uint64_t>(v.size()));
    if constexpr (in_one_piece) {
      to.bytes(v.data(), v.size() * sizeof(element));
    } else {
      for (const auto& each : v) to.value<element>(each);
    }
  }
  static C read(object_reader& from) {
    if constexpr (in_one_piece) {
      C v(from.count(sizeof(element)), element());
      from.bytes(v.data(), v.size() * sizeof(element));
      return v;
    } else {
      C v;
      for (std::size_t n = from.count(1); n > 0; --n)
        if constexpr (requires(element e) { v.push_back(std::move(e)); })
          v.push_back(from.value<element>());
        else
          v.insert(v.end(), from.value<element>());
      return v;
    }
  }
};

}  // namespace detail

template <>
struct serializer<std::string> : detail::container_serializer<std::string> {};
template <class T>
struct serializer<std::vector<T>> : detail::container_serializer<std::vector<T>> {};
template <class K, class V>
struct serializer<std::map<K, V>> : detail::container_serializer<std::map<K, V>> {};

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
// Throws on all ranks alike, because all know all lengths.
inline void check_object_size(std::uint64_t bytes, std::size_t limit) {
  if (bytes > limit)
    throw error(errc::invalid_argument, "an object of " + std::to_string(bytes) +
                                            " bytes is longer than the limit of " + std::to_string(limit) +
                                            "; give a larger one to the call, on all ranks");
}
// Without a root, every rank gets the objects.
template <class T>
task<std::vector<T>> gather_objects(communicator c, T value, std::optional<int> root, std::size_t limit) {
  const std::vector<std::byte> mine = detail::to_bytes(value);
  std::vector<std::size_t> lengths(static_cast<std::size_t>(c.size()));
  const std::size_t length = mine.size();
  co_await c.all_gather(length, lengths);
  std::size_t total = 0;
  for (const std::size_t n : lengths) {
    check_object_size(n, limit);
    total += n;
  }
  const bool wanted = !root || c.rank() == *root;
  std::vector<std::byte> all(wanted ? total : 0);
  if (root) {
    co_await c.gather_v(mine, all, lengths, *root);
  } else {
    co_await c.all_gather_v(mine, all, lengths);
  }
  std::vector<T> values;
  if (!wanted) co_return values;
  std::span<const std::byte> rest(all);
  for (const std::size_t n : lengths) {
    values.push_back(detail::from_bytes<T>(rest.first(n)));
    rest = rest.subspan(n);
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
  std::vector<std::byte> bytes;
  if (is_root) bytes = detail::to_bytes(value);
  std::uint64_t length = bytes.size();
  co_await c.broadcast(length, root);
  detail::check_object_size(length, limit);
  bytes.resize(length);
  co_await c.broadcast(bytes, root);
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
