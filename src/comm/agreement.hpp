// SPDX-License-Identifier: Apache-2.0
// agreement: how the members of a failed communicator agree on who goes on: communicator::shrink().
//
// All join the first live member, which waits for all, settles who goes on, and tells them. A member that has been told
// answers every later question about that round with the same outcome. If the first member dies, the others join the
// next one. That one waits for all live members, and so learns from any of them what was settled. A member accepts an
// outcome only by the word of the one that it has joined, and joins another only when that one has gone. So an outcome
// that a live member has heard is never settled again, as long as a link ends only with its peer. Links deliver in order
// and report their end last. If only a link breaks, one of its two ends is left out, unless a death explains it within
// half a second.
//
// Joins and outcomes pass through others, so that a rank has O(log n) connections and messages. The members are the
// places of a binomial tree. Each joins through its nearest live ancestor, which passes on one message when all in its
// subtree have joined or gone. Where the ancestor cannot reach the first member, or has an outcome by another's word, a
// member joins the first one directly.
//
// A member that gives up says so to those above and below it, which give up too and pass on who has joined. Then the
// first member can name those that have not.
//
// Rounds of one communicator are numbered: a frame of another round or another communicator is recognised.
#pragma once

#include "comm/communicator_home.hpp"
#include "core/progress_engine.hpp"
#include "p2p/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::comm {

class communicator_state;

class agreement {
 public:
  // A call of shrink() on this rank, which completes when its round has ended. Without a failure the round is
  // settled: `members` (ranks of the world) go on as the communicator `id`, and the members `failed` have died.
  struct caller : core::completion {
    std::uint32_t id = 0;
    std::vector<int> members;
    std::vector<int> failed;
  };

  explicit agreement(communicator_home& home) noexcept;
  agreement(const agreement&) = delete;
  agreement& operator=(const agreement&) = delete;
  ~agreement();

  // Makes `who` take part in the next round of the failed communicator `c`. It waits for the communicator's
  // timeout or, with `has_deadline`, until it gives up. The round then ends without a result for everybody.
  void join(communicator_state& c, caller& who, bool has_deadline);
  // Ends the wait of `who`. It is told the result soon: an outcome settled meanwhile counts.
  void give_up(caller& who, errc why, const std::string& text) noexcept;
  // As give_up, for a caller that is not told any more. Where it has been told, this rank refuses the communicator:
  // the others are told, and go on without it when they shrink that one.
  void abandon(caller& who, const std::string& text) noexcept;

  void received(int peer, std::uint32_t context, std::uint32_t number,
                std::span<const std::byte> payload) noexcept;
  void peer_closed(int peer) noexcept;
  // Raises `by_peer` for the members that a shrink() of this rank waits for.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept;
  // Called when the last handle of a communicator has gone: tells all that asked for this rank's word in a round
  // of it, which this rank has not called, that it takes no part.
  void stay_out(std::uint32_t message_context) noexcept;
  // Called when the world ends: all callers get errc::shut_down.
  void end() noexcept;

 private:
  struct round;
  using key = std::pair<std::uint32_t, std::uint32_t>;  // message context, number

  round& at(std::uint32_t context, std::uint32_t number);
  void send(key to, int peer, const std::string& bytes) noexcept;
  void ask(round& r, int peer, const std::string& bytes) noexcept;
  void answer_all(round& r, const std::string& bytes) noexcept;
  void advance(round& r);
  bool all_have_joined(round& r, const std::vector<int>& below_it);
  void report(round& r, bool whole);
  void gather(round& r);
  void turn_back_those_astray(round& r) noexcept;
  void settle(round& r);
  void tell_caller(round& r);
  void complete(caller& who) noexcept;
  void refuse(caller& who, errc why, std::string text) noexcept;
  void leave_round(round& r, errc why, const std::string& text);
  void decline(std::uint32_t id, const std::vector<int>& members, const std::string& text) noexcept;
  bool has_gone(const round& r, int member) const noexcept;
  std::span<const int> members_of(const round& r) const noexcept;
  int place_in(std::span<const int> members) const noexcept;
  int first_of(const round& r) const noexcept;
  int above(const round& r) const noexcept;
  std::vector<int> below(const round& r) const;
  std::string missing(const round& r) const;
  // Describes a rank of the world by its number in the communicator of `r`.
  std::string describe(const round& r, int member) const;
  round* round_of(const caller& who) noexcept;
  const char* act_on(int peer, key name, std::span<const std::byte> payload) noexcept;
  static void expire(void* r) noexcept;

  // The communicator of this message context; null if it is not open on this rank.
  communicator_state* find(std::uint32_t message_context) const noexcept;

  communicator_home& home_;
  std::map<key, std::unique_ptr<round>> rounds_;
  std::deque<key> settled_order_;  // the oldest first
};

}  // namespace tutti::comm
