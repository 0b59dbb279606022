// SPDX-License-Identifier: Apache-2.0
// Pixels as a PNG file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti::track {

// Whether these make an image: width x height pixels of 1 (grey), 3 (RGB) or 4 (RGBA) samples.
bool is_image(int width, int height, int channels, std::size_t samples);

// 8 bits per sample. Stored, not compressed: every reader accepts that, and it needs no zlib. Empty if these
// make no image.
std::string png_of(int width, int height, int channels, std::span<const std::uint8_t> samples);

}  // namespace tutti::track
