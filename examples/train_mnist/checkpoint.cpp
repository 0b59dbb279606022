// SPDX-License-Identifier: Apache-2.0
// Format: a header of six numbers, the parameters, the velocity, in this machine's byte order. The first
// number identifies the byte order.
#include "train_mnist/checkpoint.hpp"

#include <tutti/train/replicas.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>

namespace train_mnist {
namespace {

constexpr std::uint64_t magic = 0x3174'7375'6e6d'7454;  // differs in another byte order
enum field : std::size_t { kind, epoch, seed, parameters, hash, reserved, fields };

std::uint64_t hash_of(const std::array<std::uint64_t, fields>& header, std::span<const float> parameters_,
                      std::span<const float> velocity) {
  const std::array<std::uint64_t, 4> facts{header[kind], header[epoch], header[seed], header[parameters]};
  std::uint64_t h = tutti::hash_of(std::as_bytes(std::span(facts)));
  h = tutti::hash_of(std::as_bytes(parameters_), h);
  return tutti::hash_of(std::as_bytes(velocity), h);
}

void write_all(int file, const void* data, std::size_t bytes, const std::filesystem::path& path) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t n = ::write(file, static_cast<const char*>(data) + at, bytes - at);
    if (n < 0 && errno != EINTR) throw std::runtime_error(path.string() + ": " + std::strerror(errno));
    if (n > 0) at += static_cast<std::size_t>(n);
  }
}

}  // namespace

void save(const checkpoint& what, const std::filesystem::path& path) {
  std::array<std::uint64_t, fields> header{magic, what.epoch, what.seed, what.parameters.size(), 0, 0};
  header[hash] = hash_of(header, what.parameters, what.velocity);
  const std::filesystem::path beside = path.string() + ".new";
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) throw std::runtime_error(beside.string() + ": " + std::strerror(errno));
  try {
    write_all(file, header.data(), sizeof header, beside);
    write_all(file, what.parameters.data(), what.parameters.size() * sizeof(float), beside);
    write_all(file, what.velocity.data(), what.velocity.size() * sizeof(float), beside);
    // The new file must be on disk before it replaces the old one.
    if (::fsync(file) != 0) throw std::runtime_error(beside.string() + ": " + std::strerror(errno));
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);
  std::filesystem::rename(beside, path);
}

checkpoint load(const std::filesystem::path& path, std::size_t expected) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": " + std::strerror(errno));
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::array<std::uint64_t, fields> header{};
  if (bytes.size() < sizeof header) throw std::runtime_error(path.string() + ": is no checkpoint, or cut");
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[kind] != magic) throw std::runtime_error(path.string() + ": is no checkpoint of train_mnist");
  if (header[parameters] != expected || bytes.size() != sizeof header + 2 * expected * sizeof(float))
    throw std::runtime_error(path.string() + ": is of another network, or cut");
  checkpoint read;
  read.epoch = header[epoch];
  read.seed = header[seed];
  read.parameters.resize(expected);
  read.velocity.resize(expected);
  std::memcpy(read.parameters.data(), bytes.data() + sizeof header, expected * sizeof(float));
  std::memcpy(read.velocity.data(), bytes.data() + sizeof header + expected * sizeof(float),
              expected * sizeof(float));
  if (header[hash] != hash_of(header, read.parameters, read.velocity))
    throw std::runtime_error(path.string() + ": is damaged");
  return read;
}

}  // namespace train_mnist
