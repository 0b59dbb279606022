// SPDX-License-Identifier: Apache-2.0
// What proofs of identity are made of: HMAC-SHA256, comparison in constant time, and random bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::base {

using digest = std::array<std::uint8_t, 32>;

// Any key is allowed, the empty one included. Throws errc::system when the library refuses.
digest hmac_sha256(std::string_view key, std::span<const std::uint8_t> message);

// Takes as long for a first difference in the first byte as for one in the last. The lengths are no secret.
bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept;

// From the kernel's generator, fit for keys and nonces. Throws errc::system when there is none.
void fill_random(std::span<std::uint8_t> into);

// Lower case, two characters for each byte.
std::string to_hex(std::span<const std::uint8_t> bytes);
// `bytes` random bytes, as text: what a secret is made of.
std::string random_hex(std::size_t bytes);

}  // namespace tutti::base
