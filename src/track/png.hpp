// SPDX-License-Identifier: Apache-2.0
// Pixels as a PNG file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tutti::track {

// 8 bits per sample; channels 1 (grey), 3 (RGB) or 4 (RGBA). Stored, not compressed: every reader takes that,
// and it needs no zlib. Empty when the samples are not width x height x channels.
std::string png_of(int width, int height, int channels, std::span<const std::uint8_t> samples);

}  // namespace tutti::track
