// SPDX-License-Identifier: Apache-2.0
// A frame's header on the wire: 64 bytes, little endian, with a checksum of its own. So a stream that is out
// of step is noticed before a length is trusted.
//
//   0 magic   4 version   5 kind   6 flags   7 number   8 context   12 tag   16 length   24 transfer id
//   32 other transfer id   40 fingerprint (16)   56 CRC-32C of the payload, or 0   60 CRC-32C of bytes 0..59
// Eager, data, fail and agree frames are followed by `length` bytes of payload, the others by none. Flag 1
// says that the payload has a checksum. Frames of a connection are numbered from 0 to 255 and again, so that
// lost, repeated or early frames are noticed.
#pragma once

#include "base/limits.hpp"
#include "transport/link.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::transport::tcp {

using namespace limits::tcp;

using header = std::array<std::uint8_t, header_bytes>;

// Data of a frame's transmission, not of the frame.
struct passage {
  std::uint8_t number = 0;
  bool checked = false;        // the payload has a checksum,
  std::uint32_t checksum = 0;  // this one
};

// Bytes 8 to 55 alone: a frame without its kind.
void encode_fields(const frame& f, std::uint8_t* at) noexcept;
// As decode(), for a frame of this kind.
const char* decode_fields(std::uint32_t kind, const std::uint8_t* at, frame& f, std::uint64_t slice) noexcept;

void encode(const frame& f, header& into, const passage& way = {}) noexcept;
// Decodes a header. Returns null if a peer of this version may send it; `f` is then that frame. Otherwise
// returns a text that says what is wrong; `f` and `way` are unspecified. Data frames have up to `slice` bytes.
const char* decode(std::span<const std::uint8_t, header_bytes> from, frame& f, passage& way,
                   std::uint64_t slice = slice_bytes) noexcept;

}  // namespace tutti::transport::tcp
