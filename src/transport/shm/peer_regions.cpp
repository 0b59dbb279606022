// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_regions.hpp"

#include "base/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace tutti::transport::shm {
namespace {

// Each region of a peer is half as large as all before it: a peer with more regions is not honest.
constexpr std::size_t most_regions = 1024;

}  // namespace

void peer_regions::add(const region_label& label, base::unique_fd fd) noexcept {
  if (!fd || label.bytes == 0 || knows(label.region) || entries_.size() >= most_regions ||
      !can_be_read_safely(fd.get(), label.bytes))
    return;
  try {
    entries_.push_back(entry{label.region, mapping(fd.get(), 0, label.bytes, access::read_only)});
  } catch (const std::exception& e) {
    base::log_info(fmt::format("a peer's shared memory is not read in place: {}", e.what()));
  }
}

const peer_regions::entry* peer_regions::entry_of(std::uint64_t region) const noexcept {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [region](const entry& e) { return e.region == region; });
  return found == entries_.end() ? nullptr : &*found;
}

const std::byte* peer_regions::find(std::uint64_t region, std::uint64_t offset,
                                    std::uint64_t bytes) const noexcept {
  const entry* e = entry_of(region);
  if (e == nullptr || offset > e->memory.size() || bytes > e->memory.size() - offset) return nullptr;
  return e->memory.data() + offset;
}

}  // namespace tutti::transport::shm
