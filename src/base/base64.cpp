// SPDX-License-Identifier: Apache-2.0
#include "base/base64.hpp"

#include <nettle/base64.h>

#include <cstddef>
#include <cstdint>

namespace tutti::base {

std::string to_base64(std::string_view bytes) {
  std::string text(BASE64_ENCODE_RAW_LENGTH(bytes.size()), '\0');
  if (!bytes.empty())
    ::nettle_base64_encode_raw(text.data(), bytes.size(),
                               reinterpret_cast<const std::uint8_t*>(bytes.data()));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  ::base64_decode_ctx context;
  ::nettle_base64_decode_init(&context);
  std::string bytes(BASE64_DECODE_LENGTH(text.size()), '\0');
  std::size_t length = bytes.size();
  if (::nettle_base64_decode_update(&context, &length, reinterpret_cast<std::uint8_t*>(bytes.data()),
                                    text.size(), text.data()) == 0 ||
      ::nettle_base64_decode_final(&context) == 0)
    return std::nullopt;
  bytes.resize(length);
  return bytes;
}

}  // namespace tutti::base
