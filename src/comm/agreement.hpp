// SPDX-License-Identifier: Apache-2.0
// How the members of a failed communicator agree on who goes on: communicator::shrink().
//
// The first member (in the order of ranks) that has not gone gathers: everybody joins it, it waits for all
// that live, settles who goes on, and tells them. Whoever has been told answers every later question about
// that round with the same words. When the gatherer dies, the others join the next; that one asks all that
// live, and so hears from any of them what has been settled already. So nobody settles a second time what
// somebody who lives has heard, as long as a link ends only with its peer: links deliver in order, and report
// their end after all that came through them. Where a link alone breaks, one of its two ends is left out,
// when for half a second no death has explained it.
//
// Rounds of one communicator are numbered: a frame of another round, or of another communicator, cannot be
// taken for one of this.
#pragma once

#include "core/timer_queue.hpp"
#include "p2p/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::comm {

class communicator_state;
class world;

class agreement {
 public:
  // A call of shrink() on this rank. Told once, from the loop, possibly from inside a transport.
  class caller {
   public:
    // These members (ranks of the world) go on, as the communicator `id`; the members `failed` have died.
    virtual void settled(std::uint32_t id, std::vector<int> members, std::vector<int> failed) noexcept = 0;
    virtual void refused(errc why, std::string text) noexcept = 0;

   protected:
    ~caller() = default;
  };

  explicit agreement(world& w) noexcept;
  agreement(const agreement&) = delete;
  agreement& operator=(const agreement&) = delete;
  ~agreement();

  // `who` takes part in the next round of `c`, which has failed. It waits as long as the communicator's
  // timeout, or, when it `has_deadline`, until it gives up; then the round ends without a result, for
  // everybody.
  void join(communicator_state& c, caller& who, bool has_deadline);
  // `who` does not want to wait any longer. It is told, soon: what has been settled meanwhile counts.
  void give_up(caller& who, errc why, const std::string& text) noexcept;
  // The same for one that is not told any more.
  void abandon(caller& who, const std::string& text) noexcept;
  // This rank does not take up the communicator `id` of these members (ranks of the world), although it was
  // settled. The others are told, and go on without it when they shrink that one.
  void decline(std::uint32_t id, const std::vector<int>& members, const std::string& text) noexcept;

  void received(int peer, std::uint32_t context, std::uint32_t number,
                std::span<const std::byte> payload) noexcept;
  void peer_closed(int peer) noexcept;
  // Raises `by_peer` for the members whose word a shrink() of this rank waits for.
  void mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept;
  // Its last handle has gone: this rank takes no part in its rounds.
  void closed(const communicator_state& c) noexcept;
  // The world ends: whoever waits is refused with errc::shut_down.
  void end() noexcept;

 private:
  using bytes = std::vector<std::byte>;
  enum class word : std::uint8_t { join = 1, invite, settled, refused, give_up, absent, obituary };
  struct round;
  using key = std::pair<std::uint32_t, std::uint32_t>;  // message context, number

  round& at(std::uint32_t context, std::uint32_t number);
  void send(const round& r, int peer, word what, const bytes& rest = {});
  void advance(round& r);
  void gather(round& r);
  void settle(round& r, bytes outcome);
  void tell_caller(round& r);
  void leave_round(round& r, errc why, const std::string& text);
  void stay_out(std::uint32_t context) noexcept;
  bool has_gone(const round& r, int member) const noexcept;
  bool gathers(const round& r) const noexcept;
  std::string missing(const round& r) const;
  void spread(int dead);
  round* round_of(const caller& who) noexcept;
  void forget_old();
  static void expire(void* r) noexcept;

  world& world_;
  std::map<key, std::unique_ptr<round>> rounds_;
  std::vector<key> settled_order_;  // oldest first
};

}  // namespace tutti::comm
