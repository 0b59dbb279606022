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

#include <boost/pfr/core.hpp>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::base {

class field_writer {
 public:
  template <std::integral T>
  void field(T value) {
    std::uint8_t bytes[sizeof value];
    put_little_endian(bytes, value);
    text_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  }
  void field(bool value) { field(static_cast<std::uint8_t>(value)); }
  void field(const std::string& text) {
    field(static_cast<std::uint32_t>(text.size()));
    text_ += text;
  }
  template <class Rep, class Period>
  void field(const std::chrono::duration<Rep, Period>& value) {
    field(value.count());
  }
  template <class T>
  void field(const std::vector<T>& list) {
    field(static_cast<std::uint32_t>(list.size()));
    for (const T& each : list) field(each);
  }
  template <class... T>
  void field(const std::variant<T...>& one) {
    field(static_cast<std::uint8_t>(one.index()));
    std::visit([&](const auto& alternative) { field(alternative); }, one);
  }
  template <class T>
    requires std::is_enum_v<T>
  void field(const T& value) {
    field(static_cast<std::uint8_t>(value));
  }
  template <class T>
    requires std::is_class_v<T>
  void field(const T& m) {
    boost::pfr::for_each_field(m, [&](const auto& each) { field(each); });
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Throws errc::protocol, with the text `refusal`, for bytes that field_writer does not make. Needs no more
// memory than a multiple of the bytes that are there.
class field_reader {
 public:
  field_reader(std::string_view text, const char* refusal) : text_(text), refusal_(refusal) {}

  template <std::integral T>
  void field(T& value) {
    value = get_little_endian<T>(reinterpret_cast<const std::uint8_t*>(next(sizeof(T)).data()));
  }
  void field(bool& value) { value = number_up_to(1) == 1; }
  void field(std::string& text) { text = next(length()); }
  template <class Rep, class Period>
  void field(std::chrono::duration<Rep, Period>& value) {
    Rep count{};
    field(count);
    value = std::chrono::duration<Rep, Period>(count);
  }
  // Grows as it is read: a wrong length is noticed where the bytes end.
  template <class T>
  void field(std::vector<T>& list) {
    list.clear();
    for (std::uint32_t left = length(); left > 0; --left) field(list.emplace_back());
  }
  template <class... T>
  void field(std::variant<T...>& one) {
    using variant = std::variant<T...>;
    static constexpr variant (*make[])() = {[] { return variant(std::in_place_type<T>); }...};
    one = make[number_up_to(sizeof...(T) - 1)]();
    std::visit([&](auto& alternative) { field(alternative); }, one);
  }
  template <class T>
    requires std::is_enum_v<T>
  void field(T& value) {
    value = static_cast<T>(number_up_to(static_cast<std::uint8_t>(highest(T{}))));
  }
  template <class T>
    requires std::is_class_v<T>
  void field(T& m) {
    boost::pfr::for_each_field(m, [&](auto& each) { field(each); });
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
  field_writer w;
  w.field(value);
  return w.take();
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
