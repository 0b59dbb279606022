// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/segment.hpp"

#include "base/shared_memory.hpp"
#include "base/text.hpp"
#include "core/socket_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <tutti/error.hpp>

namespace tutti::transport::shm {
namespace {

std::size_t channel_offset(int sender, std::size_t ring_bytes) noexcept {
  return page_bytes + static_cast<std::size_t>(sender) * channel_bytes(ring_bytes);
}

}  // namespace

bool can_be_read_safely(int fd, std::uint64_t bytes) noexcept {
  struct stat information{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &information) == 0 &&
         information.st_size >= 0 && static_cast<std::uint64_t>(information.st_size) >= bytes;
}

void unmapper::operator()(std::byte* at) const noexcept { ::munmap(at, bytes); }

mapping map_memory(int fd, std::size_t offset, std::size_t bytes, access may) {
  const int protection = may == access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* address = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED)
    throw error(errc::resources,
                fmt::format("cannot map {} bytes of shared memory: {}; raise `ulimit -v`, or set "
                            "TUTTI_TRANSPORTS=tcp",
                            bytes, std::strerror(errno)));
  return {static_cast<std::byte*>(address), unmapper{bytes}};
}

own_segment::own_segment(std::uint64_t world, int rank, int size, int local_ranks)
    : ring_bytes_(ring_bytes_for(local_ranks)) {
  const std::size_t total = channel_offset(size, ring_bytes_);
  fd_ = base::make_memory_file("tutti", total);
  if (const int why = errno; !fd_)
    throw error(
        errc::resources,
        fmt::format(
            "cannot make a shared segment of {} bytes: {}; {}", total, base::write_error_text(why),
            core::out_of_descriptors(why) ? "raise `ulimit -n`" : "set TUTTI_TRANSPORTS=tcp to do without"));
  header_ = map_memory(fd_.get(), 0, page_bytes);
  segment_header& h = header();
  h.magic = segment_magic;
  h.version = layout_version;
  h.world = world;
  h.rank = static_cast<std::uint32_t>(rank);
  h.channels = static_cast<std::uint32_t>(size);
  h.ring_bytes = ring_bytes_;
}

channel own_segment::open_channel(int sender) const {
  return channel{map_memory(fd_.get(), channel_offset(sender, ring_bytes_), channel_bytes(ring_bytes_)),
                 ring_bytes_};
}

peer_segment::peer_segment(base::unique_fd fd, std::uint64_t world, int peer, int my_rank) {
  if (!can_be_read_safely(fd.get(), page_bytes))
    throw error(errc::protocol, fmt::format("rank {} sent a descriptor that is no shared segment", peer));
  header_ = map_memory(fd.get(), 0, page_bytes);
  const segment_header& h = header();
  const std::size_t ring_bytes = h.ring_bytes;
  if (h.magic != segment_magic || h.version != layout_version || h.world != world ||
      h.rank != static_cast<std::uint32_t>(peer) || static_cast<std::uint32_t>(my_rank) >= h.channels ||
      ring_bytes < least_ring_bytes || ring_bytes > (std::size_t{1} << 30) ||
      !std::has_single_bit(ring_bytes) ||
      !can_be_read_safely(fd.get(), channel_offset(my_rank + 1, ring_bytes)))
    throw error(errc::protocol,
                fmt::format("the shared segment that rank {} sent is not that rank's segment of this "
                            "world; do all ranks run the same version of tutti?",
                            peer));
  channel_ = channel{map_memory(fd.get(), channel_offset(my_rank, ring_bytes), channel_bytes(ring_bytes)),
                     ring_bytes};
}

}  // namespace tutti::transport::shm
