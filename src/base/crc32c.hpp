// SPDX-License-Identifier: Apache-2.0
// The checksum of frame headers on TCP and of records in event files.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::base {

// Castagnoli's CRC, by the processor's instruction where it has one.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes) noexcept;
// The same by table.
std::uint32_t crc32c_by_table(std::span<const std::uint8_t> bytes) noexcept;

}  // namespace tutti::base
