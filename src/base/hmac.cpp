// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.hpp"

#include "base/text.hpp"

#include <fmt/ranges.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <unistd.h>

#include <cerrno>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::base {

digest hmac_sha256(std::string_view key, std::span<const std::uint8_t> message) {
  static constexpr std::uint8_t nothing = 0;  // for calls that do not accept a null pointer to zero bytes
  ::hmac_sha256_ctx context;
  ::nettle_hmac_sha256_set_key(&context, key.size(),
                               key.empty() ? &nothing : reinterpret_cast<const std::uint8_t*>(key.data()));
  if (!message.empty()) ::nettle_hmac_sha256_update(&context, message.size(), message.data());
  digest result{};
  ::nettle_hmac_sha256_digest(&context, result.size(), result.data());
  return result;
}

bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept {
  return a.size() == b.size() && (a.empty() || ::nettle_memeql_sec(a.data(), b.data(), a.size()) != 0);
}

void fill_random(std::span<std::uint8_t> into) {
  if (::getentropy(into.data(), into.size()) != 0)
    throw error(errc::system, "getentropy: " + errno_text(errno));
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::uint8_t> random(bytes);
  fill_random(random);
  return to_hex(random);
}

}  // namespace tutti::base
