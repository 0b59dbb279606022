// SPDX-License-Identifier: Apache-2.0
// Shared memory written by a peer: lines of a channel, the segment it sends, the regions it offers.
#include "fuzz/targets.hpp"
#include "transport/shm/channel_io.hpp"
#include "transport/shm/direct.hpp"
#include "transport/shm/peer_socket.hpp"
#include "transport/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tutti/error.hpp>

namespace tutti::fuzz {
namespace {

namespace shm = transport::shm;
using transport::frame_kind;

// Reads lines with arbitrary contents. All payload must be inside the channel.
void lines(reader& in) {
  static const shm::own_segment segment(1, 0, 2, 2);
  static const shm::channel channel = segment.open_channel(1);
  std::memset(static_cast<void*>(channel.lines()), 0, shm::lines_per_channel * shm::line_bytes);
  const bool resumes = (in.value<std::uint8_t>() & 1) != 0;
  shm::channel_reader from(channel);
  const std::byte* const begins = channel.memory.get();
  const std::byte* const ends = begins + channel.memory.get_deleter().bytes;
  std::uint64_t position = 0;
  unsigned sum = 0;
  while (!in.empty() && !from.broken()) {
    shm::line& l = channel.lines()[position % shm::lines_per_channel];
    const bytes body = in.take(sizeof l.body);
    std::memcpy(l.body, body.data(), body.size());
    l.length = in.value<std::uint32_t>();
    l.context = in.value<std::uint16_t>();
    l.tag = in.value<std::int16_t>();
    const auto stamp = in.value<std::uint8_t>();
    const std::uint32_t expected = shm::stamp_of(position);
    l.stamp.store(expected | (resumes ? stamp : in.value<std::uint32_t>()), std::memory_order_relaxed);
    shm::channel_reader::item item;
    if (!from.peek(item)) break;
    TUTTI_INVARIANT(item.head.kind >= frame_kind::eager && item.head.kind <= frame_kind::alive);
    if (item.payload != nullptr) {
      TUTTI_INVARIANT(item.payload >= begins && item.payload <= ends);
      const std::size_t here = item.part_bytes > 0 ? item.part_bytes : item.head.length;
      TUTTI_INVARIANT(here <= static_cast<std::size_t>(ends - item.payload));
      TUTTI_INVARIANT(item.part_bytes == 0 || item.part_begin + item.part_bytes <= item.head.length);
      if (here > 0)
        sum += static_cast<unsigned>(item.payload[0]) + static_cast<unsigned>(item.payload[here - 1]);
    }
    if (item.head.kind == frame_kind::rts && item.head.other_transfer_id != 0) {
      shm::shown_message message(channel.header(), item.head.other_transfer_id);
      if (message.begin() && in.value<std::uint8_t>() % 2 == 0) message.give_back();
    }
    from.release();
    if (from.is_to_publish() || in.value<std::uint8_t>() % 4 == 0) from.publish();
    ++position;
  }
  TUTTI_INVARIANT(sum < ~0U);
}

// A segment whose header the peer has written itself.
void segment(reader& in) {
  const auto pages = in.value<std::uint16_t>();
  const bool sealed = (in.value<std::uint8_t>() & 3) != 0;
  base::unique_fd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::ftruncate(fd.get(), static_cast<off_t>(pages) * 4096) != 0) return;
  shm::segment_header h{};
  h.magic = shm::segment_magic;
  h.version = shm::layout_version;
  h.world = 1;
  h.rank = 1;
  h.channels = in.value<std::uint32_t>();
  h.ring_bytes = in.value<std::uint64_t>();
  const bytes over = in.take(32);
  if (!over.empty() && over[0] == 0) std::memcpy(static_cast<void*>(&h), over.data(), over.size());
  if (pages > 0) (void)!::pwrite(fd.get(), static_cast<void*>(&h), sizeof h, 0);
  if (sealed) ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  try {
    const shm::peer_segment theirs(std::move(fd), 1, 1, in.value<std::uint8_t>());
    const shm::channel& mine = theirs.mine();
    // All its pages exist: writing beyond the end of the file would end the process.
    for (std::size_t at = 0; at < mine.memory.get_deleter().bytes; at += 4096)
      const_cast<volatile std::byte&>(mine.memory[at]) = std::byte{1};
  } catch (const error& e) {
    TUTTI_INVARIANT(e.code() == errc::protocol || e.code() == errc::resources);
  }
}

// Messages on the connection beside the channels: labels of regions, with and without descriptors.
void regions(reader& in) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
  const base::unique_fd near(fds[0]), far(fds[1]);
  shm::peer_regions known;
  for (int i = 0; i < 8 && !in.empty(); ++i) {
    const auto what = in.value<std::uint8_t>();
    shm::region_label label;
    label.region = in.value<std::uint8_t>() % 4;
    label.bytes = in.value<std::uint64_t>();
    if (what % 4 != 0) label.bytes %= 20'000;
    if (what % 3 == 0) {
      const bytes raw = in.take(what % 40);
      (void)!::send(far.get(), raw.data(), raw.size(), MSG_NOSIGNAL);
    } else {
      const base::unique_fd memory(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      (void)!::ftruncate(memory.get(), 8192);
      if (what % 5 != 0) ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK);
      const int fd = memory.get();
      shm::send_descriptors(far.get(), {&fd, 1}, label);
    }
    shm::passed got = shm::receive_descriptors(near.get());
    if (got.is == shm::passed::outcome::all) known.add(got.label, std::move(got.descriptors[0]));
    const auto offset = in.value<std::uint64_t>();
    const auto bytes_there = in.value<std::uint16_t>();
    const std::byte* const at = known.find(label.region, what % 2 == 0 ? offset : offset % 9000, bytes_there);
    if (at != nullptr && bytes_there > 0) {
      const volatile std::byte* const last = at + bytes_there - 1;
      (void)*last;
    }
  }
  try {
    for (int i = 0; i < 4; ++i)
      if (!shm::receive_pair(near.get())) break;
  } catch (const error& e) {
    TUTTI_INVARIANT(e.code() == errc::protocol || e.code() == errc::peer_failed);
  }
}

}  // namespace

void shm_messages(bytes input) {
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  if (mode % 16 == 0) {
    segment(in);
  } else if (mode % 16 == 1) {
    regions(in);
  } else {
    lines(in);
  }
}

}  // namespace tutti::fuzz
