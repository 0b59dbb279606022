// SPDX-License-Identifier: Apache-2.0
// contexts: the communicators that are open on this rank, and which of their members may still send.
//
// Invariant: a context is new, open or closed. Messages of new ones are kept; those of closed ones have no
// receiver.
#pragma once

#include "p2p/control_messages.hpp"
#include "p2p/peers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace tutti::p2p {

// A communicator as the endpoint sees it.
class context_owner {
 public:
  // Called when a frame of collective `sequence` comes from `peer`. Returns false if it belongs to another
  // collective than this rank's: it is dropped.
  virtual bool admit(int peer, std::uint32_t sequence, const fingerprint& theirs) noexcept = 0;
  // Describes both calls, when a message of collective `sequence` meets a receive of a different collective.
  virtual std::string mismatch_text(int peer, std::uint32_t sequence, const fingerprint& mine,
                                    const fingerprint& theirs) const = 0;
  // `peer` has reported that this communicator failed there.
  virtual void failed_remotely(int peer, const failure_message& told) noexcept = 0;
  // The link to `peer` has closed.
  virtual void peer_closed(int peer, errc why, const std::string& text) noexcept = 0;
  // `peer` has closed this communicator: its last handle there is gone.
  virtual void closed_remotely(int /*peer*/) noexcept {}
  // The text of operations that end with errc::peer_left because of that.
  virtual std::string closed_text(int /*peer*/) const { return {}; }
  // `peer` asks how far this rank is with collective `sequence`.
  virtual progress_message where(std::uint32_t /*sequence*/) const noexcept { return {}; }
  // `peer` has answered an inquiry_message.
  virtual void told(int /*peer*/, const progress_message&) noexcept {}
  // Whether messages of this context may come from `peer`.
  virtual bool has_member(int) const noexcept { return true; }

 protected:
  ~context_owner() = default;
};

// The contexts that have been closed, in memory that does not grow with their number. Their numbers are kept as
// ranges; each rank gives out ascending ones.
class closed_contexts {
 public:
  // `ranks` is the size of the world. A communicator id is counter * ranks + the rank that gave it out; its
  // contexts are 2 * id and 2 * id + 1.
  explicit closed_contexts(std::uint32_t ranks) noexcept : ranks_(ranks) {}

  bool contains(std::uint32_t context) const noexcept {
    const std::uint64_t key = key_of(context);
    const auto above = ranges_.upper_bound(key);
    return above != ranges_.begin() && std::prev(above)->second >= key;
  }

  // Throws std::bad_alloc, leaving everything unchanged.
  void add(std::uint32_t context) {
    const std::uint64_t key = key_of(context);
    if (contains(context)) return;
    auto above = ranges_.upper_bound(key);
    auto below = above == ranges_.begin() ? ranges_.end() : std::prev(above);
    if (below != ranges_.end() && below->second + 1 == key) {
      below->second = key;
    } else {
      below = ranges_.emplace_hint(above, key, key);
    }
    if (above != ranges_.end() && above->first == key + 1) join(below, above);
    if (ranges_.size() > most_ranges) forget_a_gap(key);
  }

  std::size_t ranges() const noexcept { return ranges_.size(); }

 private:
  using map = std::map<std::uint64_t, std::uint64_t>;  // first to last key
  static constexpr std::size_t most_ranges = 4096;

  // Consecutive for the contexts that one rank gives out one after the other.
  std::uint64_t key_of(std::uint32_t context) const noexcept {
    const std::uint32_t id = context / 2;
    return (std::uint64_t{id % ranks_} << 33) | (std::uint64_t{id / ranks_} * 2 + context % 2);
  }
  void join(map::iterator below, map::iterator above) noexcept {
    below->second = above->second;
    ranges_.erase(above);
  }
  // Forgets the oldest gap of the same giver: this rank is not a member of the contexts in it, or would have
  // opened them long ago.
  void forget_a_gap(std::uint64_t key) noexcept {
    const auto first = ranges_.lower_bound(key >> 33 << 33);
    const auto second = std::next(first);
    if (second != ranges_.end() && second->first >> 33 == key >> 33) join(first, second);
  }

  std::uint32_t ranks_;
  map ranges_;
};

class contexts {
 public:
  explicit contexts(const peers& all) noexcept
      : peers_(all), closed_(static_cast<std::uint32_t>(all.size())) {}

  void open(std::uint32_t context, context_owner& owner);
  // Makes `taker` that of the open context, and returns the one before; nullptr: none.
  message_taker* exchange_taker(std::uint32_t context, message_taker* taker) noexcept;
  message_taker* taker_of(std::uint32_t context) const noexcept {
    if (takers_ == 0) [[likely]]
      return nullptr;
    const auto entry = open_.find(context);
    return entry != open_.end() ? entry->second.taker : nullptr;
  }
  // Closes a context, or one that this rank has not opened and will not open.
  void close(std::uint32_t context);
  // Whether the context was open on this rank and no longer is.
  bool was_closed(std::uint32_t context) const noexcept {
    return !open_.contains(context) && closed_.contains(context);
  }
  // Returns nullptr if the context is not open.
  context_owner* owner_of(std::uint32_t context) const noexcept {
    const auto entry = open_.find(context);
    return entry != open_.end() ? entry->second.owner : nullptr;
  }
  // Calls f(context, owner) for each open context; f opens and closes none.
  template <class F>
  void for_each(F f) const {
    for (const auto& [context, entry] : open_) f(context, *entry.owner);
  }

  // Whether the context is open and `peer` is no member of it. What it sends there has no effect.
  bool is_outsider(std::uint32_t context, int peer) const noexcept {
    const context_owner* const owner = owner_of(context);
    return owner != nullptr && !owner->has_member(peer);
  }

  // Whether a frame of a member belongs to the collective that this rank calls, or to none.
  bool admits(int peer, const frame& head) const noexcept {
    return head.fingerprint == point_to_point || admits_to_collective(peer, head);
  }

  // Records that `peer` has closed the context. Returns false if it is not open here or that is known.
  bool close_by(std::uint32_t context, int peer);
  // Whether any peer has closed a context that is open here.
  bool any_closed_by_peers() const noexcept { return closings_ > 0; }
  // Whether `peer` sends and receives nothing more in the context.
  bool gone(std::uint32_t context, int peer) const noexcept {
    return (peers_.any_gone() && peers_.gone(peer)) || (closings_ > 0 && is_closed_by(context, peer));
  }
  // Returns the reason; requires gone(context, peer).
  departure departure_of(std::uint32_t context, int peer) const;
  // Whether a receive from any source would wait for nobody.
  bool nobody_left(std::uint32_t context) const noexcept {
    const auto entry = open_.find(context);
    return entry != open_.end() && last_gone(entry->second) >= 0;
  }
  // Returns -1 if a receive to come from `source` may get a message, otherwise the peer that has gone. With
  // any_source that is also a failed member that no such receive has reported yet.
  int gone_source(std::uint32_t context, int source) noexcept {
    if (!peers_.any_gone() && closings_ == 0) return -1;
    if (source >= 0) return gone(context, source) ? source : -1;
    return gone_of_any(context);
  }
  // The next receive or probe from any source is to report that `peer` has failed.
  void report_failed(std::uint32_t context, int peer) noexcept { open_.find(context)->second.untold = peer; }

 private:
  struct state {
    context_owner* owner = nullptr;
    int untold = -1;  // a failed member that no wildcard receive has reported yet
    std::vector<int> closed_by;
    message_taker* taker = nullptr;
  };
  static bool is_closed_by(const state& s, int peer) noexcept {
    return std::find(s.closed_by.begin(), s.closed_by.end(), peer) != s.closed_by.end();
  }
  bool is_closed_by(std::uint32_t context, int peer) const noexcept;
  bool admits_to_collective(int peer, const frame& head) const noexcept;
  // Returns a member that has gone if all other members have, there were some, and this rank does not send to
  // itself. Otherwise -1.
  int last_gone(const state& s) const noexcept;
  int gone_of_any(std::uint32_t context) noexcept;

  const peers& peers_;
  std::unordered_map<std::uint32_t, state> open_;
  closed_contexts closed_;
  std::size_t closings_ = 0;  // number of pairs of an open context and a peer that has closed it
  std::size_t takers_ = 0;    // number of open contexts that have one
};

}  // namespace tutti::p2p
