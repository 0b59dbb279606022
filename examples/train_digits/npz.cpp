// SPDX-License-Identifier: Apache-2.0
// Field names follow PKWARE's APPNOTE and numpy's NEP 1.
#include "train_digits/npz.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace train_digits {
namespace {

constexpr std::uint64_t largest_bytes = std::uint64_t{1} << 30;  // limit of a file, and of an array
constexpr std::uint64_t end_signature = 0x06054b50, central_signature = 0x02014b50,
                        local_signature = 0x04034b50;
constexpr std::uint64_t end_size = 22, central_size = 46, local_size = 30, longest_comment = 0xFFFF;
enum method : std::uint64_t { stored = 0, deflated = 8 };

}  // namespace

npz_file::npz_file(const std::filesystem::path& path) : path_(path.string()) {
  std::error_code unknown;
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  std::ifstream file(path, std::ios::binary);
  if (unknown || !file) fail(std::string("cannot be opened: ") + std::strerror(errno));
  if (size > largest_bytes) fail("is too large: more than 1 GiB");
  content_.assign(std::istreambuf_iterator<char>(file), {});
}

void npz_file::fail(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }

std::uint64_t npz_file::number(std::uint64_t at, unsigned bytes) const {
  if (at > content_.size() || content_.size() - at < bytes)
    fail("is no intact npz file: it is cut off, or damaged: download it again");
  std::uint64_t n = 0;
  for (unsigned i = bytes; i-- > 0;) n = n << 8 | static_cast<std::uint8_t>(content_[at + i]);
  return n;
}

// `entry`: offset of its record in the central directory.
std::vector<std::uint8_t> npz_file::unpacked(std::uint64_t entry) const {
  const std::uint64_t how = number(entry + 10, 2), checksum = number(entry + 16, 4);
  const std::uint64_t packed_size = number(entry + 20, 4), size = number(entry + 24, 4);
  const std::uint64_t local = number(entry + 42, 4);
  if (number(local, 4) != local_signature) fail("is no intact npz file: an entry is not where it should be");
  const std::uint64_t begin = local + local_size + number(local + 26, 2) + number(local + 28, 2);
  if (size > largest_bytes) fail("has an array of more than 1 GiB");
  if (begin > content_.size() || content_.size() - begin < packed_size)
    fail("is cut off inside an array: download it again");
  auto* const packed = reinterpret_cast<const Bytef*>(content_.data() + begin);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  bool whole = false;
  if (how == stored) {
    whole = packed_size == size;
    if (whole) std::copy_n(packed, size, bytes.begin());
  } else if (how == deflated) {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("cannot be unpacked: out of memory");
    stream.next_in = const_cast<Bytef*>(packed);
    stream.avail_in = static_cast<uInt>(packed_size);
    stream.next_out = bytes.data();
    stream.avail_out = static_cast<uInt>(size);
    whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 0;
    inflateEnd(&stream);
  } else {
    fail("is packed in a way that numpy does not use");
  }
  if (!whole || crc32(0, bytes.data(), static_cast<uInt>(size)) != checksum)
    fail("is damaged: an array does not have the length or the checksum that is promised: download it again");
  return bytes;
}

npz_array npz_file::read(const std::string& name, std::size_t dimensions) const {
  // The archive ends with a record and a comment of unknown length.
  std::uint64_t end = content_.size() < end_size ? 0 : content_.size() - end_size;
  const std::uint64_t first = end - std::min(end, longest_comment);
  while (number(end, 4) != end_signature) {
    if (end == first) fail("is no npz file, or cut off: it does not end as a zip archive: download it again");
    --end;
  }
  std::uint64_t entry = number(end + 16, 4);
  std::vector<std::uint8_t> bytes;
  for (std::uint64_t left = number(end + 10, 2);; --left) {
    if (left == 0) fail("has no array '" + name + "'");
    if (number(entry, 4) != central_signature) fail("is no intact npz file: its directory is damaged");
    const std::uint64_t length = number(entry + 28, 2);
    (void)number(entry + 42, 4);  // checks that the record is complete
    if (content_.compare(entry + central_size, length, name + ".npy") == 0) break;
    entry += central_size + length + number(entry + 30, 2) + number(entry + 32, 2);
  }
  bytes = unpacked(entry);

  // numpy's header: a magic number, a dictionary, blanks and a new line; the elements follow.
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view before = "{'descr': '|u1', 'fortran_order': False, 'shape': (", after = "), }";
  const std::size_t dictionary = std::min(text.find('{'), text.size());
  const std::size_t sizes = dictionary + before.size(), close = text.find(')', dictionary);
  const std::size_t line_end = text.find('\n', dictionary);
  if (!text.starts_with("\x93NUMPY") || line_end == text.npos || close > line_end ||
      !text.substr(dictionary).starts_with(before) || !text.substr(close).starts_with(after))
    fail("'" + name + "' is no array of unsigned bytes");
  npz_array array;
  std::uint64_t elements = 1;
  const std::string shape(text.substr(sizes, close - sizes));
  std::istringstream in(shape);
  for (std::size_t size = 0; in >> size && elements <= largest_bytes; in.ignore()) {
    array.shape.push_back(size);
    elements *= std::min(size, std::size_t{largest_bytes} + 1);
  }
  const std::size_t data = line_end + 1;
  if (array.shape.size() != dimensions || elements != bytes.size() - data)
    fail("'" + name + "' has the wrong shape: (" + shape + ")");
  array.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(data), bytes.end());
  return array;
}

}  // namespace train_digits
