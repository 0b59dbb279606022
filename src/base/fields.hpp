// SPDX-License-Identifier: Apache-2.0
// Structures as bytes, and back: the form of messages between processes.
//
// The fields follow each other: integers in the bytes of their type, bools and enumerators in one byte, texts
// and lists after their length (4 bytes), a variant after its index (1 byte). A structure is an aggregate, whose
// members are the fields, in their order. An enumeration has a function highest(), which returns its last
// enumerator.
#pragma once

#include "base/little_endian.hpp"
#include "base/throw_error.hpp"

#include <boost/mp11/algorithm.hpp>
#include <boost/pfr/core.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace tutti::base {

class field_writer {
 public:
  explicit field_writer(std::string& to) noexcept : text_(to) {}
  template <class T>
  void field(const T& value) {
    if constexpr (std::is_same_v<T, bool> || std::is_enum_v<T>) {
      field(static_cast<std::uint8_t>(value));
    } else if constexpr (std::integral<T>) {
      std::uint8_t bytes[sizeof value];
      put_little_endian(bytes, value);
      text_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
    } else if constexpr (std::is_same_v<T, std::string>) {
      field(static_cast<std::uint32_t>(value.size()));
      text_ += value;
    } else if constexpr (requires { typename T::period; }) {  // a duration
      field(value.count());
    } else if constexpr (requires { value.begin(); }) {
      field(static_cast<std::uint32_t>(value.size()));
      for (const auto& each : value) field(each);
    } else if constexpr (requires { value.index(); }) {
      field(static_cast<std::uint8_t>(value.index()));
      std::visit([&](const auto& alternative) { field(alternative); }, value);
    } else {
      boost::pfr::for_each_field(value, [&](const auto& each) { field(each); });
    }
  }

 private:
  std::string& text_;
};

// Throws errc::protocol, with the text `refusal`, for bytes that field_writer does not make. Needs no more
// memory than a multiple of the bytes that are there.
class field_reader {
 public:
  field_reader(std::string_view text, const char* refusal) : text_(text), refusal_(refusal) {}

  template <class T>
  void field(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = number_up_to(1) == 1;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(number_up_to(static_cast<std::uint8_t>(highest(T{}))));
    } else if constexpr (std::integral<T>) {
      value = get_little_endian<T>(reinterpret_cast<const std::uint8_t*>(next(sizeof value).data()));
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = next(length());
    } else if constexpr (requires { typename T::period; }) {
      typename T::rep count{};
      field(count);
      value = T(count);
    } else if constexpr (requires { value.begin(); }) {
      value.clear();
      // Grows as it is read: a wrong length is noticed where the bytes end.
      for (std::uint32_t left = length(); left > 0; --left) field(value.emplace_back());
    } else if constexpr (requires { value.index(); }) {
      constexpr std::size_t alternatives = std::variant_size_v<T>;
      boost::mp11::mp_with_index<alternatives>(number_up_to(alternatives - 1), [&](auto index) {
        field(value.template emplace<decltype(index)::value>());
      });
    } else {
      boost::pfr::for_each_field(value, [&](auto& each) { field(each); });
    }
  }
  // The bytes that have not been read.
  std::string_view rest() const noexcept { return text_; }
  void end() const {
    if (!text_.empty()) refuse();
  }

 private:
  [[noreturn]] void refuse() const { throw error(errc::protocol, refusal_); }
  std::string_view next(std::size_t bytes) {
    if (bytes > text_.size()) refuse();
    const std::string_view taken = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return taken;
  }
  std::uint8_t number_up_to(std::uint8_t most) {
    std::uint8_t number = 0;
    field(number);
    if (number > most) refuse();
    return number;
  }
  std::uint32_t length() {
    std::uint32_t length = 0;
    field(length);
    return length;
  }

  std::string_view text_;
  const char* refusal_;
};

template <class T>
std::string to_bytes(const T& value) {
  std::string bytes;
  field_writer(bytes).field(value);
  return bytes;
}
template <class T>
T from_bytes(std::string_view bytes, const char* refusal) {
  field_reader r(bytes, refusal);
  T value{};
  r.field(value);
  r.end();
  return value;
}

}  // namespace tutti::base
