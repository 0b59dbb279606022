// SPDX-License-Identifier: Apache-2.0
// The checksum of frames on TCP and of records in event files.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::base {

// Castagnoli's CRC, by the processor's instruction if it has one, of data with the CRC `before` (0: none)
// followed by these bytes.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes, std::uint32_t before = 0) noexcept;
// The same by table.
std::uint32_t crc32c_by_table(std::span<const std::uint8_t> bytes, std::uint32_t before = 0) noexcept;

}  // namespace tutti::base
