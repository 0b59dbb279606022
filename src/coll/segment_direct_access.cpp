// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_direct_access.hpp"

#include "coll/segment_progress.hpp"

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

collective_segment::location show(collective_segment& b, const void* data, std::size_t bytes) noexcept {
  return bytes == 0 ? collective_segment::location{nothing_to_read, 0} : b.show(data, bytes);
}

// Waits until has(rank) is true of every other rank.
template <class Has>
class every_other : public collective_segment::wait {
 public:
  every_other(const collective& c, Has has) noexcept : wait(c.segment(), &test, this), c_(c), has_(has) {}

 private:
  static int test(void* self) noexcept {
    auto& e = *static_cast<every_other*>(self);
    for (; e.next_ < e.c_.size(); ++e.next_)
      if (e.next_ != e.c_.rank() && !e.has_(e.next_)) return e.next_;
    return -1;
  }
  const collective& c_;
  Has has_;
  int next_ = 0;
};

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

task<> arrive_and_agree(collective c, own_memory mine, int root, std::size_t whole, const blocks* parts,
                        memory_of_others* others) {
  collective_segment& b = c.segment();
  co_await room_to_write(c, 0);
  const bool gives = root < 0 || root == c.rank();
  shown own;
  if (whole >= least_direct && gives) {
    own.data = show(b, mine.data, mine.data_bytes);
    own.results = show(b, mine.results, mine.results_bytes);
  }
  std::memcpy(b.payload(), &own, sizeof own);
  b.arrive();
  if (whole < least_direct || (gives && (own.data.region == 0 || own.results.region == 0))) co_return;
  arrivals givers(c, root == c.rank() ? -1 : root);
  co_await givers;
  givers.check();
  bool readable = true;
  for (int r = 0; r < c.size(); ++r) {
    if (r == c.rank() || (root >= 0 && r != root)) continue;
    shown theirs;
    std::memcpy(&theirs, b.payload_of(r), sizeof theirs);
    if (theirs.data.region == 0 || theirs.results.region == 0) co_return;  // as every rank sees
    readable =
        readable && find_buffers(c, r, theirs, parts == nullptr ? whole : parts->bytes(r), whole, *others);
  }
  b.vote(readable);
  // Votes are of this operation once their ranks have arrived.
  arrivals all(c);
  co_await all;
  all.check();
  every_other votes(c, [&](int r) {
    const collective_segment::opinion vote = b.vote_of(r);
    readable = readable && vote != collective_segment::opinion::no;
    return vote != collective_segment::opinion::none;
  });
  co_await votes;
  others->agreed = readable;
}

task<> end_reading(collective c, std::uint64_t end, bool is_read) {
  collective_segment& b = c.segment();
  co_await collective_segment::wait(b);
  b.say_consumed(end);
  if (!is_read) co_return;
  every_other readers(
      c, [&b, end](int r) { return b.progress_of(r).consumed.load(std::memory_order_acquire) >= end; });
  co_await readers;
}

}  // namespace tutti::coll
