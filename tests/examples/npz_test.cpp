// SPDX-License-Identifier: Apache-2.0
// Files of numpy: intact and damaged ones, and Keras' MNIST.
#include "examples/scratch_files.hpp"

#include "train_digits/dataset.hpp"
#include "train_digits/npz.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using namespace train_digits;
using tutti::test::error_of;
using tutti::test::scratch_directory;

namespace {

struct entry {
  std::string name, content;
};

// An array in numpy's format.
entry array(const std::string& name, const std::string& shape, const std::string& bytes,
            const std::string& type = "|u1") {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(117 - header.size(), ' ');
  return {name + ".npy", std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + bytes};
}

std::string little_endian(std::uint64_t n, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(n >> 8 * i & 0xFF);
  return text;
}

std::string deflated(const std::string& bytes) {
  std::string packed(compressBound(bytes.size()) + 64, '\0');
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// numpy.savez, or savez_compressed.
std::string npz(const std::vector<entry>& entries, bool compressed) {
  std::string file, directory;
  for (const entry& e : entries) {
    const std::string packed = compressed ? deflated(e.content) : e.content;
    const auto checksum =
        crc32(0, reinterpret_cast<const Bytef*>(e.content.data()), static_cast<uInt>(e.content.size()));
    const std::string facts = little_endian(compressed ? 8 : 0, 2) + little_endian(0, 4) +
                              little_endian(checksum, 4) + little_endian(packed.size(), 4) +
                              little_endian(e.content.size(), 4) + little_endian(e.name.size(), 2);
    const std::size_t local = file.size();
    const std::string extra(20, 'e');  // numpy's local entries have one
    file += "PK\x03\x04" + little_endian(20, 2) + little_endian(0, 2) + facts +
            little_endian(extra.size(), 2) + e.name + extra + packed;
    directory += "PK\x01\x02" + little_endian(20, 2) + little_endian(20, 2) + little_endian(0, 2) + facts +
                 little_endian(0, 2) + little_endian(0, 2) + little_endian(0, 8) + little_endian(local, 4) +
                 e.name;
  }
  const std::size_t begin = file.size();
  return file + directory + "PK\x05\x06" + little_endian(0, 4) + little_endian(entries.size(), 2) +
         little_endian(entries.size(), 2) + little_endian(directory.size(), 4) + little_endian(begin, 4) +
         little_endian(0, 2);
}

std::vector<entry> mnist(int labels = 3) {
  return {array("x_test", "2, 2, 3", "abcdefghijkl"), array("x_train", "3, 2, 3", std::string(18, 'x')),
          array("y_train", std::to_string(labels) + ",", std::string(static_cast<std::size_t>(labels), '\2')),
          array("y_test", "2,", std::string("\1\2"))};
}

}  // namespace

TEST_CASE("npz: arrays, stored and compressed") {
  for (const bool compressed : {false, true}) {
    const scratch_directory scratch;
    const npz_file file(scratch.write("a.npz", npz(mnist(), compressed)));
    const npz_array images = file.read("x_test", 3);
    CHECK(images.shape == std::vector<std::size_t>{2, 2, 3});
    CHECK(std::string(images.bytes.begin(), images.bytes.end()) == "abcdefghijkl");
    CHECK(file.read("y_test", 1).bytes == std::vector<std::uint8_t>{1, 2});
    CHECK(error_of([&] { file.read("x", 3); }).find("has no array 'x'") != std::string::npos);
    CHECK(error_of([&] { file.read("x_test", 1); }).find("wrong shape: (2, 2, 3)") != std::string::npos);
  }
}

TEST_CASE("npz: a truncated or changed file never gives a wrong array") {
  for (const bool compressed : {false, true}) {
    const scratch_directory scratch;
    const std::string good = npz(mnist(), compressed);
    const auto read = [&](const std::string& bytes) {
      return npz_file(scratch.write("bad.npz", bytes)).read("x_test", 3).bytes;
    };
    const std::vector<std::uint8_t> wanted = read(good);
    for (std::size_t cut = 0; cut < good.size(); cut += 5)
      CHECK(error_of([&] { read(good.substr(0, cut)); }).find("bad.npz: ") != std::string::npos);
    for (std::size_t at = 0; at < good.size(); at += 3) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x41);
      std::vector<std::uint8_t> got;
      CAPTURE(at);
      const std::string why = error_of([&] { got = read(bad); });
      CHECK((why.empty() ? got == wanted : why.find("bad.npz: ") != std::string::npos));
    }
  }
}

TEST_CASE("npz: the error for other arrays than of unsigned bytes") {
  const scratch_directory scratch;
  const auto error = [&](const entry& e) {
    return error_of([&] { npz_file(scratch.write("bad.npz", npz({e}, true))).read("a", 1); });
  };
  CHECK(error(array("a", "2,", "abcd", "<i2")).find("'a' is no array of unsigned bytes") !=
        std::string::npos);
  CHECK(error({"a.npy", "no array"}).find("'a' is no array of unsigned bytes") != std::string::npos);
  CHECK(error(array("a", "3,", "ab")).find("wrong shape: (3,)") != std::string::npos);
  CHECK(error_of([&] { npz_file(scratch.path() / "none"); }).find("none: cannot be opened") !=
        std::string::npos);
}

TEST_CASE("npz: Keras' MNIST") {
  const scratch_directory scratch;
  scratch.write("mnist.npz", npz(mnist(), true));
  const data_split split = load_mnist(scratch.path());
  CHECK(split.training.size() == 3);
  CHECK(split.test.size() == 2);
  CHECK(split.test.rows == 2);
  CHECK(split.test.columns == 3);
  CHECK(split.test.labels == std::vector<std::uint8_t>{1, 2});
  scratch.write("mnist.npz", npz(mnist(2), true));
  CHECK(error_of([&] { load_mnist(scratch.path()); }).find("has 2 labels for the 3 images of x_train") !=
        std::string::npos);
}
