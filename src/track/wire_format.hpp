// SPDX-License-Identifier: Apache-2.0
// The wire format of Protocol Buffers, as far as TensorBoard's messages need it. Written by hand: a second
// libprotobuf in a process that has one (as with TensorFlow or ONNX) ends that process at its start.
#pragma once

#include "base/little_endian.hpp"

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::track {

class wire_message {
 public:
  wire_message& integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  wire_message& real(int field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  wire_message& real32(int field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  wire_message& text(int field, std::string_view bytes) {
    key(field, 2);
    varint(bytes.size());
    bytes_.append(bytes);
    return *this;
  }
  wire_message& message(int field, const wire_message& inner) { return text(field, inner.bytes_); }
  wire_message& reals(int field, std::span<const double> values) {
    key(field, 2);
    varint(values.size() * sizeof(double));
    for (const double v : values) fixed(std::bit_cast<std::uint64_t>(v));
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class T>
  void fixed(T bits) {
    std::uint8_t at[sizeof(T)];
    base::put_little_endian(at, bits);
    bytes_.append(reinterpret_cast<const char*>(at), sizeof at);
  }
  std::string bytes_;
};

}  // namespace tutti::track
