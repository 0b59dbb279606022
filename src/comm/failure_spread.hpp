// SPDX-License-Identifier: Apache-2.0
// failure_spread: why a communicator has failed, which of its members have, and how a failure spreads: to the
// other members, to the operations of this rank, and to the communicators that were made from this one.
//
// Invariants: the first reason stays. A failure has a first collective; it only ever moves to an earlier one, and the
// collectives before it complete. A rank that another tells passes it on before it ends anything.
#pragma once

#include "comm/collective_order.hpp"
#include "comm/group.hpp"
#include "comm/pending_operations.hpp"
#include "core/loop.hpp"
#include "p2p/endpoint.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::comm {

// Of more members than these a rank tells some of a failure, and these tell the others.
inline constexpr int most_told_directly = 64;

class failure_spread {
 public:
  // The communicator whose failure this is.
  class owner {
   public:
    virtual std::uint32_t message_context() const noexcept = 0;
    virtual std::uint32_t made_by() const noexcept = 0;  // the collective that made it; 0: none
    virtual void has_failed() noexcept = 0;              // called once
    // Those of the communicator that it was made from, if that is open; null for the world's.
    virtual failure_spread* parent() noexcept = 0;
    // Calls f for those of the communicators that were made from it; f may end any of them.
    virtual void for_each_child(const std::function<void(failure_spread&)>& f) noexcept = 0;

   protected:
    ~owner() = default;
  };

  failure_spread(owner& o, core::loop& loop, p2p::endpoint& endpoint, const group& members,
                 collective_order& order, pending_operations& pending);

  bool failed() const noexcept { return failure_.why != errc::success; }
  // Whether the failure reaches collective `sequence`, or all collectives from there on.
  bool ends(std::uint32_t sequence) const noexcept {
    return failed() && (failure_.first == 0 || !collective_order::precedes(sequence, failure_.first));
  }
  errc why() const noexcept { return failure_.why; }
  const std::string& text() const noexcept { return failure_.text; }
  p2p::subject names() const noexcept { return failure_.names; }
  // The error of a collective that ends with such a failure.
  std::string text_for(const running_collective& c, const std::string& text, p2p::subject names) const;
  // As other members are told of it, with this reach.
  p2p::failure_message to_tell(p2p::extent reach) const {
    return {failure_.why, failure_.text, reach, failed_members(), failure_.first, failure_.names};
  }
  // The error for a call on a failed communicator. It is the failure itself as long as no operation of this rank has
  // ended with it: a peer may report it while nothing is pending. Later it is errc::communicator_failed.
  errc report() noexcept {
    if (why() == errc::shut_down) return why();
    return std::exchange(reported_, true) ? errc::communicator_failed : why();
  }

  // Fails the communicator: ends messages, and collectives except those before `first`, with this reason.
  // `names` is what the text names: a pending collective that the text does not name puts its own name before
  // it. With `tell`, also on the other members; without, another rank has told this one, and collectives may yet
  // complete from what has come of them. With extent::children, also the communicators made from this one.
  // `first` is that of failure_message; without it, the first open collective. A second failure only extends it to
  // earlier collectives.
  void fail(errc why, const std::string& text, p2p::subject names, bool tell,
            p2p::extent reach = p2p::extent::one, std::optional<std::uint32_t> first = std::nullopt) noexcept;
  // `peer` has told this rank of a failure.
  void told(int peer, const p2p::failure_message& what) noexcept;
  // A member has died: no collective that it has not reached can succeed. Point to point between the others goes on.
  void lost_member(errc why, const std::string& text) noexcept;
  // Why no collective can succeed any more (a member has died); empty otherwise.
  const std::string& dead_member() const noexcept { return dead_member_.text; }

  // The ranks whose link has failed on this rank, and those that other members reported or agreed on; ascending.
  std::vector<int> failed_ranks() const;
  // The same as ranks of the world; empty also if memory has run out.
  std::vector<int> failed_members() const noexcept;
  // Ignores ranks of the world that are not members.
  void add_failed(std::span<const int> world_ranks) noexcept;
  // Whether failed_ranks() has this rank of the world.
  bool counts(int world_rank) const noexcept {
    const int rank = members_.rank_of(world_rank);
    return rank >= 0 && has_failed(rank);
  }

  // Numbers the calls of shrink() on this communicator, the same on all members.
  std::uint32_t next_round() noexcept { return ++rounds_; }

  // The runtime ends: all operations end with errc::shut_down, and nothing fails any more.
  void shut_down() noexcept;

 private:
  // Ends the collectives that the failure reaches when the loop has polled everything once more: what came before
  // another rank's word of the failure completes them first.
  class last_rounds final : public core::source {
   public:
    explicit last_rounds(failure_spread& f) noexcept : of_(f) {}
    ~last_rounds() override { stop(); }
    void begin(errc why, const std::string& text, p2p::subject names) noexcept;
    void stop() noexcept;
    bool poll() noexcept override;
    bool arm() noexcept override { return true; }

   private:
    failure_spread& of_;
    int left_ = 0;
    p2p::failure_message failure_;
  };

  core::progress_engine& engine() const noexcept { return loop_.engine(); }
  bool fails_earlier(std::uint32_t first) const noexcept {
    return !failed() ||
           (failure_.first != 0 && (first == 0 || collective_order::precedes(first, failure_.first)));
  }
  bool has_failed(int rank) const noexcept {
    return told_failed_[static_cast<std::size_t>(rank)] ||
           endpoint_.peers().failed(members_.world_rank(rank));
  }
  // Whether this rank is one that tells that rank of a failure.
  bool tells(int rank) const noexcept;
  bool end_messages() noexcept;  // returns whether any was pending
  void end_collectives(errc why, const std::string& text, p2p::subject names) noexcept;
  void fail_unmade(const p2p::failure_message& told) noexcept;
  void fail_children(errc why, const std::string& text, bool tell) noexcept;
  static void end_doubts(void* self) noexcept;

  owner& owner_;
  core::loop& loop_;
  p2p::endpoint& endpoint_;
  const group& members_;
  collective_order& order_;
  pending_operations& pending_;
  p2p::failure_message failure_;  // errc::success: it has not failed
  bool reported_ = false;         // an operation of this rank has ended with the failure
  bool shut_down_ = false;
  p2p::departure dead_member_;
  std::vector<bool> told_failed_;  // by rank: other members have reported its failure, or agreed on it
  std::uint32_t rounds_ = 0;
  core::timer doubts_timer_;  // armed when a member dies during a collective
  last_rounds last_rounds_{*this};
};

}  // namespace tutti::comm
