// SPDX-License-Identifier: Apache-2.0
// Pixels as a PNG file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tutti::track {

// 8 bits per sample; channels 1 (grey), 3 (RGB) or 4 (RGBA). Stored, not compressed: every reader accepts
// that, and it needs no zlib. Empty unless there are width x height x channels samples.
std::string png_of(int width, int height, int channels, std::span<const std::uint8_t> samples);

}  // namespace tutti::track
