// SPDX-License-Identifier: Apache-2.0
#include "coll/segment_progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti::coll {
namespace {

using comm::collective_segment;

// Every rank tells every other one directly: afterwards any two are connected.
template <class T>
task<> tell_all(collective c, const T* mine, T* all) {
  in_flight<p2p::receiving, collective_segment::most_ranks> receives;
  in_flight<p2p::sending, collective_segment::most_ranks> sends;
  all[c.rank()] = *mine;
  for (int r = 0; r < c.size(); ++r)
    if (r != c.rank()) receives.start([&] { return c.receive(r, all + r, sizeof(T)); });
  for (int r = 0; r < c.size(); ++r)
    if (r != c.rank()) sends.start([&] { return c.send(r, mine, sizeof(T)); });
  co_await receives.drain();
  co_await sends.drain();
}

}  // namespace

task<> set_up_segment(collective c) {
  collective_segment& b = c.segment();
  const auto size = static_cast<std::size_t>(c.size());
  const collective_segment::handle mine = b.make_part();
  std::array<collective_segment::handle, collective_segment::most_ranks> handles{};
  co_await tell_all(c, &mine, handles.data());
  std::uint8_t good = b.show_part() ? 1 : 0;
  // When this arrives, the shown parts are there.
  std::array<std::uint8_t, collective_segment::most_ranks> all{};
  co_await tell_all(c, &good, all.data());
  for (std::size_t r = 0; r < size; ++r)
    if (all[r] == 0 || (static_cast<int>(r) != c.rank() && !b.find_part(static_cast<int>(r), handles[r])))
      good = 0;
  co_await tell_all(c, &good, all.data());
  b.decide(std::all_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size),
                       [](std::uint8_t ok) { return ok != 0; }));
}

void refuse_operation(const collective& c, int rank) {
  const collective_segment& b = c.segment();
  const std::string theirs =
      b.sequence_of(rank) == c.sequence() ? "" : fmt::format(" (its collective #{})", b.sequence_of(rank));
  throw error(errc::mismatch, c.comm().mismatch_text(c.comm().world_rank(rank), c.sequence(), c.print(),
                                                     b.fingerprint_of(rank)) +
                                  theirs);
}

}  // namespace tutti::coll
