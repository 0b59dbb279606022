// SPDX-License-Identifier: Apache-2.0
// The tools of authentication: HMAC-SHA256, comparison in constant time, and random bytes. By nettle: loading
// libcrypto and its first call took 2.1 ms of every process's start, a third of the time to the first barrier
// of two ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::base {

using digest = std::array<std::uint8_t, 32>;

// Any key is allowed, also the empty one. Throws errc::system if the library refuses.
digest hmac_sha256(std::string_view key, std::span<const std::uint8_t> message);

// Takes the same time wherever the first difference is. The lengths are no secret.
bool equal_in_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) noexcept;

// From the kernel's generator, fit for keys and nonces; at most 256 bytes. Throws errc::system if there is none.
void fill_random(std::span<std::uint8_t> into);

// Lower case, two characters per byte.
std::string to_hex(std::span<const std::uint8_t> bytes);
// `bytes` random bytes as text, for secrets.
std::string random_hex(std::size_t bytes);

}  // namespace tutti::base
