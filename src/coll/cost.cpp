// SPDX-License-Identifier: Apache-2.0
#include "coll/cost.hpp"

#include <algorithm>
#include <bit>

namespace tutti::coll {
namespace {

class message_costs {
 public:
  explicit message_costs(const link_costs& links) noexcept : links_(links) {}

  // One message, from the call to its end at the receiver.
  double message(double bytes) const noexcept {
    const double one = frame(bytes);
    return bytes <= links_.eager_limit ? one : one + 2 * frame(0);  // rts and cts
  }
  // Between two messages of one sender.
  double interval(double bytes) const noexcept { return std::max(links_.overhead, through(bytes)); }
  // Between two exchanges of one rank with others, of which `in_flight` may be under way at a time.
  double exchange(double bytes, double others, double in_flight) const noexcept {
    const double waiting = others > in_flight ? message(bytes) / in_flight : 0;
    return std::max({2 * links_.overhead, through(bytes), waiting});
  }
  // Rounds with twice as many bytes each time, after which `bytes` have come to the `part` of this rank.
  double doubling(double part, double bytes, int rounds) const noexcept {
    double t = 0, have = part;
    for (; rounds > 0; --rounds) {
      const double more = std::min(have, bytes - have);
      t += message(more);
      have += more;
    }
    return t;
  }
  double copies(double bytes) const noexcept { return bytes * links_.copied_byte; }

 private:
  double wire(double bytes) const noexcept { return (bytes + links_.header_bytes) * links_.byte; }
  double through(double bytes) const noexcept { return links_.gap + wire(bytes); }
  double frame(double bytes) const noexcept { return 2 * links_.overhead + links_.latency + wire(bytes); }
  const link_costs& links_;
};

}  // namespace

cost cost_of(operation_kind kind, algorithm with, double bytes, int ranks, const link_costs& links) noexcept {
  using enum operation_kind;
  const message_costs f(links);
  const auto size = static_cast<unsigned>(ranks);
  const double n = ranks, part = bytes / n;
  const int rounds = std::bit_width(size - 1), whole_rounds = std::bit_width(size) - 1;
  // Messages of those beyond the power of two, before and after.
  const double extra = std::has_single_bit(size) ? 0 : 2;
  switch (with) {
    case algorithm::dissemination:
      return {rounds * f.message(0), std::min(n - 1, 2.0 * rounds)};
    case algorithm::binomial:
      if (kind == scatter || kind == gather)
        return {f.doubling(part, bytes, rounds), static_cast<double>(rounds)};
      return {rounds * f.message(bytes), static_cast<double>(rounds)};
    case algorithm::recursive_doubling:
      return {(whole_rounds + extra) * f.message(bytes), whole_rounds + extra / 2};
    case algorithm::rabenseifner:
      return {2 * f.doubling(part, bytes, rounds) + extra * f.message(bytes), whole_rounds + extra / 2};
    case algorithm::ring:
      if (kind == broadcast) return {-1, 0};
      if (kind == all_reduce) return {2 * (n - 1) * f.message(part), std::min(n - 1, 2.0)};
      // The root collects the blocks one by one.
      if (kind == reduce) return {n * f.message(part) + (n - 2) * f.interval(part), n - 1};
      return {(n - 1) * f.message(part), std::min(n - 1, 2.0)};
    case algorithm::scatter_all_gather:
      // The root sends the blocks one by one, and they go round meanwhile.
      return {(n - 1) * (f.message(part) + f.interval(part)), n - 1};
    case algorithm::bruck: {
      const double connections = std::min(n - 1, 2.0 * rounds);
      if (kind == all_to_all)
        return {rounds * f.message(bytes / 2) + f.copies((2 + rounds) * bytes), connections};
      return {f.doubling(part, bytes, rounds) + f.copies(bytes), connections};
    }
    case algorithm::linear:
      return {f.message(part) + (n - 2) * f.interval(part), n - 1};
    case algorithm::direct:
    case algorithm::pairwise:
      // The results of an all_reduce go round.
      return {f.message(part) + (n - 2) * f.exchange(part, n - 1, 4) +
                  (kind == all_reduce ? (n - 1) * f.message(part) : 0),
              n - 1};
    case algorithm::one_shot:
      return {f.message(bytes) + (n - 2) * f.exchange(bytes, n - 1, 7), n - 1};
    default:
      return {-1, 0};
  }
}

}  // namespace tutti::coll
