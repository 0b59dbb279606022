// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <climits>
#include <system_error>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::base {

digest hmac_sha256(std::string_view key, std::span<const std::uint8_t> message) {
  // A null key would mean "the key of the last call" to OpenSSL.
  const char* const bytes = key.empty() ? "" : key.data();
  digest result{};
  unsigned length = 0;
  if (key.size() > INT_MAX ||
      ::HMAC(::EVP_sha256(), bytes, static_cast<int>(key.size()), message.data(), message.size(),
             result.data(), &length) == nullptr ||
      length != result.size())
    throw error(errc::system,
                "OpenSSL cannot compute HMAC-SHA256: is its default provider missing, or the key too long?");
  return result;
}

bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::uint8_t> into) {
  while (!into.empty()) {
    const ssize_t got = ::getrandom(into.data(), into.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw error(errc::system, "getrandom: " + std::generic_category().message(errno));
    }
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t b : bytes) {
    text.push_back(digits[b >> 4]);
    text.push_back(digits[b & 15]);
  }
  return text;
}

std::string random_hex(std::size_t bytes) {
  std::vector<std::uint8_t> random(bytes);
  fill_random(random);
  return to_hex(random);
}

}  // namespace tutti::base
