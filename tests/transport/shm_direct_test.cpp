// SPDX-License-Identifier: Apache-2.0
// Messages read from the sender's own pages: descriptors and regions, the slots that hand over a message,
// reading in slices, and cancellation by the sender at any moment.
#include "base/shared_memory.hpp"
#include "support/local_world.hpp"
#include "transport/shm/direct.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>
#include <tutti/shared_memory.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::transport;
using namespace tutti::transport::shm;

namespace {

constexpr std::uint64_t world_id = 78;

struct two_ends {
  own_segment segment{world_id, 0, 2, 2};
  shm::channel inbox = segment.open_channel(1);
  peer_segment outbox{base::unique_fd(::dup(segment.fd())), world_id, 0, 1};
  shown_messages sender{outbox.mine().header()};
  shown_message message(std::uint64_t name) { return shown_message(inbox.header(), name); }
};

struct socket_pair {
  socket_pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    one.reset(ends[0]);
    other.reset(ends[1]);
  }
  base::unique_fd one;
  base::unique_fd other;
};

base::unique_fd file_of(std::size_t bytes, int seals) {
  base::unique_fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(fd);
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

// A receive as the endpoint makes it.
struct a_receiver final : inbound {
  explicit a_receiver(std::size_t bytes) : buffer(bytes) {}
  destination_buffer begin(int, const frame& head) noexcept override {
    ++begun;
    if (cancelled || head.transfer_id != transfer_id || head.other_transfer_id > buffer.span().size())
      return {};
    return destination_buffer{
        buffer.span().data() + head.other_transfer_id,
        std::min<std::size_t>(head.length, buffer.span().size() - head.other_transfer_id), this};
  }
  void end(int, const frame& head, const destination_buffer&) noexcept override { received += head.length; }
  void closed(int, errc, std::string) noexcept override {}
  static constexpr std::uint64_t transfer_id = 99;
  guarded_buffer buffer;
  bool cancelled = false;
  int begun = 0;
  std::uint64_t received = 0;
};

frame rts_of(std::size_t bytes, std::uint64_t transfer_id, std::uint64_t name) {
  frame f;
  f.kind = frame_kind::rts;
  f.context = 6;
  f.length = bytes;
  f.transfer_id = transfer_id;
  f.other_transfer_id = name;
  return f;
}

}  // namespace

TEST_CASE("shm direct: a region is sent once and read in place, as long as the reader needs it") {
  socket_pair sockets;
  auto data = std::make_unique<shared_vector<std::byte>>(300'000);
  fill(*data, 5);
  const auto place = base::find_shared(data->data(), data->size());
  REQUIRE(place);
  REQUIRE(send_descriptors(sockets.one.get(), {&place->fd, 1}, {place->region, place->region_bytes}));
  passed offer = receive_descriptors(sockets.other.get());
  REQUIRE(offer.is == passed::outcome::all);
  CHECK(offer.label.region == place->region);
  CHECK(receive_descriptors(sockets.other.get()).is == passed::outcome::nothing);
  peer_regions regions;
  CHECK(regions.find(place->region, 0, 1) == nullptr);
  regions.add(offer.label, std::move(offer.descriptors[0]));
  const std::byte* seen = regions.find(place->region, place->offset, data->size());
  REQUIRE(seen != nullptr);
  CHECK(std::equal(data->begin(), data->end(), seen));
  (*data)[17] ^= std::byte{1};
  CHECK(seen[17] == (*data)[17]);
  data.reset();
  CHECK(seen[17] == std::byte{0});  // no fault: the pages are freed, the file still exists

  sockets.one.reset();
  CHECK(receive_descriptors(sockets.other.get()).is == passed::outcome::hung_up);
}

TEST_CASE("shm direct: malformed names and descriptors never make the reader leave a region") {
  peer_regions regions;
  const std::uint64_t bytes = 1 << 20;
  regions.add({7, bytes}, file_of(bytes, F_SEAL_SHRINK));
  CHECK(regions.find(7, 0, bytes) != nullptr);
  CHECK(regions.find(7, bytes, 0) != nullptr);
  CHECK(regions.find(7, 0, bytes + 1) == nullptr);
  CHECK(regions.find(7, 1, bytes) == nullptr);
  CHECK(regions.find(7, bytes + 1, 0) == nullptr);
  CHECK(regions.find(7, ~std::uint64_t{0}, 2) == nullptr);
  CHECK(regions.find(7, 2, ~std::uint64_t{0}) == nullptr);
  CHECK(regions.find(7, ~std::uint64_t{0} - 5, ~std::uint64_t{0}) == nullptr);
  CHECK(regions.find(8, 0, 1) == nullptr);
  random_numbers numbers(3);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t offset = numbers.next() >> numbers.below(64);
    const std::uint64_t length = numbers.next() >> numbers.below(64);
    const bool inside = offset <= bytes && length <= bytes && offset + length <= bytes;
    REQUIRE((regions.find(7, offset, length) != nullptr) == inside);
  }
  // Invalid descriptors.
  regions.add({8, bytes}, file_of(bytes, 0));                  // the file could shrink under the reader
  regions.add({9, bytes + 1}, file_of(bytes, F_SEAL_SHRINK));  // shorter than announced
  regions.add({10, 0}, file_of(0, F_SEAL_SHRINK));
  regions.add({11, ~std::uint64_t{0}}, file_of(bytes, F_SEAL_SHRINK));
  regions.add({12, bytes}, base::unique_fd());
  regions.add({13, bytes}, base::unique_fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)));
  for (std::uint64_t region = 8; region <= 13; ++region) CHECK_FALSE(regions.knows(region));
  // The number is in use: the first region stays.
  regions.add({7, 4096}, file_of(4096, F_SEAL_SHRINK));
  CHECK(regions.find(7, 0, bytes) != nullptr);

  socket_pair sockets;
  REQUIRE(::send(sockets.one.get(), "nonsense", 8, 0) == 8);
  CHECK(receive_descriptors(sockets.other.get()).is == passed::outcome::nonsense);
}

TEST_CASE("shm direct: a slot goes to the reader or back to the sender, never to both") {
  two_ends ends;
  SUBCASE("read") {
    const std::uint64_t name = ends.sender.show(3, 4096);
    REQUIRE(name != 0);
    shown_message m = ends.message(name);
    const auto place = m.begin();
    REQUIRE(place);
    CHECK(place->region == 3);
    CHECK(place->offset == 4096);
    CHECK(m.still_shown());
    CHECK_FALSE(ends.message(name).begin());  // once
    CHECK(m.end());
    CHECK_FALSE(m.end());
    m.give_back();  // too late
    CHECK(ends.sender.hide(name));
    CHECK_FALSE(ends.sender.hide(name));
  }
  SUBCASE("re-queued by the reader, and read again") {
    const std::uint64_t name = ends.sender.show(3, 4096);
    shown_message m = ends.message(name);
    REQUIRE(m.begin());
    m.give_back();
    CHECK_FALSE(m.still_shown());
    CHECK_FALSE(m.end());
    shown_message again = ends.message(name);
    REQUIRE(again.begin());
    CHECK(again.end());
    CHECK(ends.sender.hide(name));
  }
  SUBCASE("re-queued after the sender has cancelled") {
    const std::uint64_t name = ends.sender.show(3, 4096);
    shown_message m = ends.message(name);
    REQUIRE(m.begin());
    CHECK_FALSE(ends.sender.hide(name));
    m.give_back();
    CHECK_FALSE(ends.message(name).begin());
    const std::uint64_t next = ends.sender.show(4, 8192);
    m.give_back();  // of an earlier message in the same slot
    REQUIRE(ends.message(next).begin());
  }
  SUBCASE("cancelled before") {
    const std::uint64_t name = ends.sender.show(3, 4096);
    ends.sender.hide(name);
    CHECK_FALSE(ends.message(name).begin());
  }
  SUBCASE("cancelled during the read") {
    const std::uint64_t name = ends.sender.show(3, 4096);
    shown_message m = ends.message(name);
    REQUIRE(m.begin());
    ends.sender.hide(name);
    CHECK_FALSE(m.still_shown());
    CHECK_FALSE(m.end());
  }
  SUBCASE("the slot has a new message, so the old name is invalid") {
    const std::uint64_t name = ends.sender.show(3, 4096);
    shown_message m = ends.message(name);
    REQUIRE(m.begin());
    ends.sender.hide(name);
    const std::uint64_t next = ends.sender.show(4, 8192);
    CHECK((next & 0xff) == (name & 0xff));
    CHECK(next != name);
    CHECK_FALSE(m.end());
    ends.sender.hide(name);
    shown_message n = ends.message(next);
    REQUIRE(n.begin());
    CHECK(n.end());
  }
  SUBCASE("all in use, and all cancelled") {
    std::vector<std::uint64_t> names;
    while (const std::uint64_t name = ends.sender.show(1, 64)) names.push_back(name);
    CHECK(names.size() == direct_slots);
    shown_message m = ends.message(names[5]);
    REQUIRE(m.begin());
    ends.sender.hide_all();
    CHECK_FALSE(m.end());
    for (const std::uint64_t name : names) CHECK_FALSE(ends.message(name).begin());
    CHECK(ends.sender.show(1, 64) != 0);
  }
  SUBCASE("names that were never sent") {
    random_numbers numbers(5);
    ends.sender.show(1, 64);
    for (int i = 0; i < 1000; ++i) {
      CHECK_FALSE(ends.message(numbers.next() | (std::uint64_t{1} << 40)).begin());
      ends.sender.hide(numbers.next() | (std::uint64_t{1} << 40));
    }
  }
}

TEST_CASE("shm direct: reading in slices") {
  two_ends ends;
  const std::size_t bytes = 2 * direct_slice_bytes + 1000;
  const std::vector<std::byte> data = filled(bytes, 1);
  direct_reads reads;
  a_receiver receiver(bytes);
  const std::uint64_t name = ends.sender.show(1, 0);
  shown_message m = ends.message(name);
  REQUIRE(m.begin());
  reads.start(rts_of(bytes, 55, name), m, data.data(), a_receiver::transfer_id);
  CHECK(reads.busy());
  CHECK(reads.step(receiver, 1) == nullptr);
  CHECK(receiver.received == direct_slice_bytes);

  SUBCASE("to the end") {
    CHECK(reads.step(receiver, 1) == nullptr);
    outgoing* fin = reads.step(receiver, 1);
    REQUIRE(fin != nullptr);
    CHECK(fin->head.kind == frame_kind::fin);
    CHECK(fin->head.transfer_id == 55);
    CHECK_FALSE(reads.busy());
    CHECK(receiver.received == bytes);
    CHECK(std::equal(data.begin(), data.end(), receiver.buffer.span().begin()));
    fin->done(*fin, true);
  }
  SUBCASE("the receive ends: no more bytes are read, and the sender is notified") {
    receiver.cancelled = true;
    fill(receiver.buffer.span(), 7);
    outgoing* fin = reads.step(receiver, 1);
    REQUIRE(fin != nullptr);
    CHECK(receiver.received == direct_slice_bytes);
    CHECK(std::vector<std::byte>(receiver.buffer.span().begin(), receiver.buffer.span().end()) ==
          filled(bytes, 7));
    fin->done(*fin, true);
  }
  SUBCASE("stopped: the message stays at the sender and is read again from its beginning") {
    frame rts;
    CHECK_FALSE(reads.stop(a_receiver::transfer_id + 1, rts));
    REQUIRE(reads.stop(a_receiver::transfer_id, rts));
    CHECK_FALSE(reads.stop(a_receiver::transfer_id, rts));
    CHECK_FALSE(reads.busy());
    CHECK(rts.transfer_id == 55);
    CHECK(rts.other_transfer_id == name);
    CHECK(rts.length == bytes);
    shown_message again = ends.message(rts.other_transfer_id);
    REQUIRE(again.begin());
    fill(receiver.buffer.span(), 7);
    receiver.received = 0;
    reads.start(rts, again, data.data(), a_receiver::transfer_id);
    while (reads.busy())
      if (outgoing* fin = reads.step(receiver, 1)) fin->done(*fin, true);
    CHECK(receiver.received == bytes);
    CHECK(std::equal(data.begin(), data.end(), receiver.buffer.span().begin()));
    CHECK(ends.sender.hide(name));
  }
  SUBCASE("stopped after the sender has cancelled, before its frame arrives") {
    ends.sender.hide(name);
    CHECK(reads.step(receiver, 1) == nullptr);
    frame rts;
    REQUIRE(reads.stop(a_receiver::transfer_id, rts));
    frame back = rts_of(0, 55, 0);
    back.kind = frame_kind::cancel;
    reads.note_cancel(back);
    CHECK(back.other_transfer_id == 0);  // the id of no message
    CHECK_FALSE(ends.message(name).begin());
  }
  SUBCASE("the sender cancels, and its frame arrives later") {
    ends.sender.hide(name);
    CHECK(reads.step(receiver, 1) == nullptr);
    CHECK_FALSE(reads.busy());
    CHECK(receiver.received == direct_slice_bytes);
    frame back = rts_of(0, 55, 0);
    back.kind = frame_kind::cancel;
    reads.note_cancel(back);
    CHECK(back.other_transfer_id == a_receiver::transfer_id);
    frame unknown = rts_of(0, 55, 0);
    reads.note_cancel(unknown);
    CHECK(unknown.other_transfer_id == 0);
  }
  SUBCASE("the sender cancels after the last byte, before the end") {
    CHECK(reads.step(receiver, 1) == nullptr);
    ends.sender.hide(name);
    CHECK(reads.step(receiver, 1) == nullptr);
    CHECK(receiver.received == 2 * direct_slice_bytes);
  }
  SUBCASE("the sender's frame arrives first") {
    ends.sender.hide(name);
    frame back = rts_of(0, 55, 0);
    reads.note_cancel(back);
    CHECK(back.other_transfer_id == a_receiver::transfer_id);
    CHECK_FALSE(reads.busy());
  }
  SUBCASE("the link ends") {
    reads.clear();
    CHECK_FALSE(reads.busy());
  }
  CHECK(receiver.buffer.margins_intact());
  CHECK_FALSE(reads.full());
}

// A sender cancels its messages at any moment and overwrites them at once, while another thread reads. A read
// that ends with success must be intact.
TEST_CASE("shm direct: a successful read is intact, whenever the sender cancels") {
  const std::uint64_t seed = seed_of_this_run();
  CAPTURE(seed);
  two_ends ends;
  constexpr std::size_t words = 4096;
  constexpr std::uint64_t rounds = 20'000;
  const auto words_of = [](std::byte* at) { return reinterpret_cast<std::atomic<std::uint64_t>*>(at); };
  shared_vector<std::byte> memory(words * sizeof(std::uint64_t));
  std::atomic<std::uint64_t> offered = 0;
  std::atomic<bool> finished = false;
  std::uint64_t whole = 0, torn = 0, lost = 0;
  std::thread reader([&] {
    std::uint64_t last = 0;
    std::vector<std::uint64_t> copy(words);
    while (!finished.load()) {
      const std::uint64_t name = offered.load(std::memory_order_acquire);
      if (name == last) continue;
      last = name;
      shown_message m = ends.message(name);
      const auto place = m.begin();
      if (!place) {
        ++lost;
        continue;
      }
      for (std::size_t i = 0; i < words; ++i)
        copy[i] = words_of(memory.data())[i].load(std::memory_order_relaxed);
      if (!m.end()) {
        ++lost;
        continue;
      }
      ++whole;
      for (std::size_t i = 0; i < words; ++i) {
        if (copy[i] == place->offset) continue;
        ++torn;
        break;
      }
    }
  });
  random_numbers numbers(seed);
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::size_t i = 0; i < words; ++i)
      words_of(memory.data())[i].store(round, std::memory_order_relaxed);
    const std::uint64_t name = ends.sender.show(1, round);
    offered.store(name, std::memory_order_release);
    const std::size_t pause = numbers.below(8000);
    for (std::size_t i = 0; i < pause; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (numbers.one_in(16)) std::this_thread::yield();
    ends.sender.hide(name);
  }
  finished.store(true);
  reader.join();
  CAPTURE(whole);
  CAPTURE(lost);
  CHECK(torn == 0);
}

TEST_CASE("shm direct: the sender is killed while its message is read") {
  two_ends ends;
  socket_pair sockets;
  const std::size_t bytes = 3 * direct_slice_bytes;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    sockets.other.reset();
    shared_vector<std::byte> data(bytes);
    fill(data, 21);
    const auto place = base::find_shared(data.data(), bytes);
    if (!place || !send_descriptors(sockets.one.get(), {&place->fd, 1}, {place->region, place->region_bytes}))
      ::_exit(1);
    ends.sender.show(place->region, place->offset);
    char byte = 's';
    if (::send(sockets.one.get(), &byte, 1, MSG_NOSIGNAL) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  sockets.one.reset();
  REQUIRE(::fcntl(sockets.other.get(), F_SETFL, 0) == 0);  // blocks until the child writes
  const timeval bound{30, 0};
  REQUIRE(::setsockopt(sockets.other.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0);
  passed offer;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (offer.is == passed::outcome::nothing && std::chrono::steady_clock::now() < end)
    offer = receive_descriptors(sockets.other.get());
  char byte = 0;
  const ssize_t got = ::recv(sockets.other.get(), &byte, 1, 0);
  peer_regions regions;
  regions.add(offer.label, std::move(offer.descriptors[0]));
  a_receiver receiver(bytes);
  direct_reads reads;
  const std::uint64_t name = std::uint64_t{1} << 8;  // the first
  shown_message m = ends.message(name);
  const auto place = m.begin();
  const std::byte* from = place ? regions.find(place->region, place->offset, bytes) : nullptr;
  if (from != nullptr) {
    reads.start(rts_of(bytes, 1, name), m, from, a_receiver::transfer_id);
    reads.step(receiver, 0);
  }
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(offer.is == passed::outcome::all);
  REQUIRE(got == 1);
  REQUIRE(from != nullptr);
  reads.step(receiver, 0);
  outgoing* fin = reads.step(receiver, 0);
  REQUIRE(fin != nullptr);
  const std::vector<std::byte> wanted = filled(bytes, 21);
  CHECK(std::equal(wanted.begin(), wanted.end(), receiver.buffer.span().begin()));
}
