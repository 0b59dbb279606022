// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/header.hpp"

#include "base/crc32c.hpp"
#include "base/little_endian.hpp"

#include <cstring>

namespace tutti::transport::tcp {
namespace {

using base::crc32c;
using base::get_little_endian;
using base::put_little_endian;

constexpr std::uint32_t magic = 0x66747474;  // "tttf"
constexpr std::uint8_t version = 5;
constexpr std::uint8_t checked_payload = 1;
constexpr std::size_t checked_bytes = header_bytes - 4;
constexpr std::size_t fields_at = 8;
static_assert(fields_at + fields_bytes + 2 * sizeof(std::uint32_t) == header_bytes);

}  // namespace

void encode_fields(const frame& f, std::uint8_t* at) noexcept {
  put_little_endian(at, f.context);
  put_little_endian(at + 4, f.tag);
  put_little_endian(at + 8, f.length);
  put_little_endian(at + 16, f.transfer_id);
  put_little_endian(at + 24, f.other_transfer_id);
  std::memcpy(at + 32, f.fingerprint.data(), f.fingerprint.size());
}

const char* decode_fields(std::uint32_t kind, const std::uint8_t* at, frame& f,
                          std::uint64_t slice) noexcept {
  f.kind = static_cast<frame_kind>(kind);
  if (!is_frame_kind(kind) || f.kind == frame_kind::fin)  // for memory that the peer can read
    return "a frame of an unknown kind";
  f.context = get_little_endian<std::uint32_t>(at);
  f.tag = get_little_endian<std::int32_t>(at + 4);
  f.length = get_little_endian<std::uint64_t>(at + 8);
  f.transfer_id = get_little_endian<std::uint64_t>(at + 16);
  f.other_transfer_id = get_little_endian<std::uint64_t>(at + 24);
  std::memcpy(f.fingerprint.data(), at + 32, f.fingerprint.size());
  if (f.kind == frame_kind::eager && f.length > eager_limit_bytes)
    return "an eager frame longer than the eager limit";
  if (f.kind == frame_kind::data && f.length > slice) return "a data frame longer than a slice";
  if ((f.kind == frame_kind::fail && f.length > fail_text_limit_bytes) ||
      (f.kind == frame_kind::agree && f.length > agree_limit_bytes))
    return "a fail or agree frame with too long a payload";
  return nullptr;
}

void encode(const frame& f, header& into, const passage& way) noexcept {
  std::uint8_t* const at = into.data();
  put_little_endian(at, magic);
  at[4] = version;
  at[5] = static_cast<std::uint8_t>(f.kind);
  at[6] = way.checked ? checked_payload : std::uint8_t{0};
  at[7] = way.number;
  encode_fields(f, at + fields_at);
  put_little_endian(at + 56, way.checked ? way.checksum : std::uint32_t{0});
  put_little_endian(at + 60, crc32c(std::span<const std::uint8_t>(at, checked_bytes)));
}

const char* decode(std::span<const std::uint8_t, header_bytes> from, frame& f, passage& way,
                   std::uint64_t slice) noexcept {
  const std::uint8_t* const at = from.data();
  if (get_little_endian<std::uint32_t>(at) != magic) return "bytes that do not begin a frame";
  if (at[4] != version) return "a frame of another version of tutti";
  if (get_little_endian<std::uint32_t>(at + 60) != crc32c(from.first(checked_bytes)))
    return "a frame header with a wrong checksum";
  way.checked = at[6] == checked_payload;
  way.number = at[7];
  way.checksum = get_little_endian<std::uint32_t>(at + 56);
  if (at[6] > checked_payload || (!way.checked && way.checksum != 0)) return "a frame with unknown flags";
  return decode_fields(at[5], at + fields_at, f, slice);
}

}  // namespace tutti::transport::tcp
