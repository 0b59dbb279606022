// SPDX-License-Identifier: Apache-2.0
// Collectives of objects: their bytes.
#include <fmt/format.h>

#include <cstring>
#include <tutti/error.hpp>
#include <tutti/objects.hpp>
#include <utility>

namespace tutti {

void object_writer::bytes(const void* from, std::size_t n) {
  const auto* const first = static_cast<const std::byte*>(from);
  bytes_.insert(bytes_.end(), first, first + n);
}

void object_reader::bytes(void* to, std::size_t n) {
  if (n > rest_.size()) refuse();
  if (n > 0) std::memcpy(to, rest_.data(), n);
  rest_ = rest_.subspan(n);
}

std::size_t object_reader::count(std::size_t each) {
  std::uint64_t n = 0;
  bytes(&n, sizeof n);
  if (n > rest_.size() / (each == 0 ? 1 : each)) refuse();
  return n;
}

void object_reader::refuse() {
  throw error(errc::protocol,
              "the bytes of an object are not what its type writes; do all ranks run the same program?");
}

namespace detail {
namespace {

// Throws on all ranks alike, because all know all lengths.
void check_object_size(std::uint64_t bytes, std::size_t limit) {
  if (bytes > limit)
    throw error(errc::invalid_argument,
                fmt::format("an object of {} bytes is longer than the limit of {}; give a larger one to the "
                            "call, on all ranks",
                            bytes, limit));
}

}  // namespace

task<std::vector<std::byte>> broadcast_bytes(communicator c, std::vector<std::byte> mine, int root,
                                             std::size_t limit) {
  std::uint64_t length = mine.size();
  co_await c.broadcast(length, root);
  check_object_size(length, limit);
  mine.resize(length);
  co_await c.broadcast(mine, root);
  co_return mine;
}

task<gathered_bytes> gather_bytes(communicator c, std::vector<std::byte> mine, std::optional<int> root,
                                  std::size_t limit) {
  gathered_bytes all;
  all.lengths.resize(static_cast<std::size_t>(c.size()));
  const std::size_t length = mine.size();
  co_await c.all_gather(length, all.lengths);
  std::size_t total = 0;
  for (const std::size_t n : all.lengths) {
    check_object_size(n, limit);
    total += n;
  }
  const bool wanted = !root || c.rank() == *root;
  if (wanted) all.bytes.resize(total);
  if (root)
    co_await c.gather_v(mine, all.bytes, all.lengths, *root);
  else
    co_await c.all_gather_v(mine, all.bytes, all.lengths);
  if (!wanted) all.lengths.clear();
  co_return all;
}

}  // namespace detail
}  // namespace tutti
