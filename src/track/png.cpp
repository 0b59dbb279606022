// SPDX-License-Identifier: Apache-2.0
#include "track/png.hpp"

#include <algorithm>
#include <boost/crc.hpp>
#include <string_view>

namespace tutti::track {
namespace {

std::uint32_t adler_of(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<std::uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

void put_big_endian(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

void put_chunk(std::string& to, std::string_view type, std::string_view data) {
  put_big_endian(to, static_cast<std::uint32_t>(data.size()));
  std::string checked(type);
  checked += data;
  to += checked;
  boost::crc_32_type crc;
  crc.process_bytes(checked.data(), checked.size());
  put_big_endian(to, crc.checksum());
}

// A zlib stream of stored blocks.
std::string stored(std::string_view bytes) {
  constexpr std::size_t longest = 65535;
  std::string out("\x78\x01", 2);
  for (std::size_t at = 0;;) {
    const std::size_t n = std::min(longest, bytes.size() - at);
    const bool last = at + n == bytes.size();
    out += static_cast<char>(last ? 1 : 0);
    for (const std::size_t length : {n, longest - n}) {
      out += static_cast<char>(length & 0xFF);
      out += static_cast<char>(length >> 8);
    }
    out += bytes.substr(at, n);
    at += n;
    if (last) break;
  }
  put_big_endian(out, adler_of(bytes));
  return out;
}

}  // namespace

bool is_image(int width, int height, int channels, std::size_t samples) {
  if (width < 1 || height < 1 || (channels != 1 && channels != 3 && channels != 4)) return false;
  const std::size_t row = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  return samples % row == 0 && samples / row == static_cast<std::size_t>(height);
}

std::string png_of(int width, int height, int channels, std::span<const std::uint8_t> samples) {
  if (!is_image(width, height, channels, samples.size())) return {};
  std::string header;
  put_big_endian(header, static_cast<std::uint32_t>(width));
  put_big_endian(header, static_cast<std::uint32_t>(height));
  header += '\x08';
  header += channels == 1 ? '\x00' : channels == 3 ? '\x02' : '\x06';
  header.append(3, '\0');
  std::string filtered;  // each row behind the number of its filter: 0, none
  filtered.reserve(samples.size() + static_cast<std::size_t>(height));
  const std::size_t row = samples.size() / static_cast<std::size_t>(height);
  for (std::size_t at = 0; at < samples.size(); at += row) {
    filtered += '\0';
    filtered.append(reinterpret_cast<const char*>(samples.data() + at), row);
  }
  std::string png("\x89PNG\r\n\x1a\n", 8);
  put_chunk(png, "IHDR", header);
  put_chunk(png, "IDAT", stored(filtered));
  put_chunk(png, "IEND", {});
  return png;
}

}  // namespace tutti::track
