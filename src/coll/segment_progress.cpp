// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_progress.hpp"

#include "coll/algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::coll {
namespace {

using comm::collective_segment;

// The contents of the slot of an operation.
struct shown {
  collective_segment::location data;
  collective_segment::location results;
};
static_assert(sizeof(shown) <= collective_segment::slot_payload);

constexpr std::uint64_t nothing_to_read = ~std::uint64_t{0};

collective_segment::location show(collective_segment& b, std::span<const std::byte> bytes) noexcept {
  return bytes.empty() ? collective_segment::location{nothing_to_read, 0}
                       : b.show(bytes.data(), bytes.size());
}

// Waits until has(rank) is true of every other rank.
template <class Has>
auto every_other(const collective& c, Has has) noexcept {
  return until(c, [&c, has, next = 0]() mutable {
    for (; next < c.size(); ++next)
      if (next != c.rank() && !has(next)) return next;
    return -1;
  });
}

// Maps what `rank` has shown. Returns false if something cannot be read.
bool find_buffers(const collective& c, int rank, const shown& theirs, std::size_t data_bytes,
                  std::size_t whole, memory_of_others& others) noexcept {
  const auto i = static_cast<std::size_t>(rank);
  const auto find = [&](const collective_segment::location& p, std::size_t bytes, const std::byte*& at) {
    at = p.region == nothing_to_read ? nullptr : c.segment().find_memory(rank, p, bytes);
    return at != nullptr || p.region == nothing_to_read;
  };
  return find(theirs.data, data_bytes, others.data[i]) && find(theirs.results, whole, others.results[i]);
}

}  // namespace

// Every rank tells every other one directly: afterwards any two are connected.
task<> set_up_segment(collective c) {
  collective_segment& b = c.segment();
  const collective_segment::handle mine = b.make_part();
  std::array<collective_segment::handle, collective_segment::most_ranks> handles{};
  co_await tell_all(c, &mine, sizeof mine, handles.data());
  std::uint8_t good = b.show_part() ? 1 : 0;
  // When this arrives, the shown parts are there.
  std::array<std::uint8_t, collective_segment::most_ranks> all{};
  co_await tell_all(c, &good, sizeof good, all.data());
  for (int r = 0; r < c.size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r != c.rank() && (all[i] == 0 || !b.find_part(r, handles[i]))) good = 0;
  }
  co_await tell_all(c, &good, sizeof good, all.data());
  all[static_cast<std::size_t>(c.rank())] = good;
  b.decide(std::all_of(all.begin(), all.begin() + c.size(), [](std::uint8_t ok) { return ok != 0; }));
}

void refuse_operation(const collective& c, int rank) {
  const collective_segment& b = c.segment();
  const std::string theirs =
      b.sequence_of(rank) == c.sequence() ? "" : fmt::format(" (its collective #{})", b.sequence_of(rank));
  throw error(errc::mismatch, c.comm().mismatch_text(c.comm().world_rank(rank), c.sequence(), c.print(),
                                                     b.fingerprint_of(rank)) +
                                  theirs);
}

task<memory_of_others> arrive_and_agree(collective c, std::span<const std::byte> data,
                                        std::span<const std::byte> results, int root, std::size_t whole,
                                        const blocks* parts) {
  collective_segment& b = c.segment();
  memory_of_others others;
  co_await room_to_write(c, 0);
  const bool gives = root < 0 || root == c.rank();
  shown own;
  if (whole >= least_direct && gives) own = {show(b, data), show(b, results)};
  std::memcpy(b.payload(), &own, sizeof own);
  b.arrive();
  if (whole < least_direct || (gives && (own.data.region == 0 || own.results.region == 0))) co_return others;
  arrivals givers(c, root == c.rank() ? -1 : root);
  co_await givers;
  givers.check();
  bool readable = true;
  for (int r = 0; r < c.size(); ++r) {
    if (r == c.rank() || (root >= 0 && r != root)) continue;
    shown theirs;
    std::memcpy(&theirs, b.payload_of(r), sizeof theirs);
    if (theirs.data.region == 0 || theirs.results.region == 0) co_return others;  // as every rank sees
    readable =
        readable && find_buffers(c, r, theirs, parts == nullptr ? whole : parts->bytes(r), whole, others);
  }
  b.vote(readable);
  // Votes are of this operation once their ranks have arrived.
  arrivals all(c);
  co_await all;
  all.check();
  auto votes = every_other(c, [&](int r) {
    const collective_segment::opinion vote = b.vote_of(r);
    readable = readable && vote != collective_segment::opinion::no;
    return vote != collective_segment::opinion::none;
  });
  co_await votes;
  others.agreed = readable;
  co_return others;
}

task<> end_reading(collective c, std::uint64_t end, bool is_read) {
  collective_segment& b = c.segment();
  co_await collective_segment::wait(b);
  b.say_consumed(end);
  if (!is_read) co_return;
  auto readers = every_other(
      c, [&b, end](int r) { return b.progress_of(r).consumed.load(std::memory_order_acquire) >= end; });
  co_await readers;
}

}  // namespace tutti::coll
