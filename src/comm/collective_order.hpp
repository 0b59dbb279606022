// SPDX-License-Identifier: Apache-2.0
// collective_order: the numbers of one communicator's collectives, what was called under each, and which are in
// progress on this rank.
//
// Invariants: this rank starts collectives in the order of their numbers. The fingerprint of a frame is compared with
// this rank's call, when the later of the two is seen, as long as the place of the number is remembered.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/progress_engine.hpp"
#include "flight/layout.hpp"
#include "p2p/transfer_states.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace tutti::comm {

struct running_tag;

// A collective in progress, as its communicator sees it.
class running_collective : public core::completion, public base::list_hook<running_tag> {
 public:
  explicit running_collective(std::uint32_t s) noexcept : sequence(s) {}
  // Ends it at once. On return it references no buffer, and its completion with this failure is queued.
  virtual void end(errc why, const std::string& text) noexcept = 0;
  virtual std::string describe() const = 0;  // "all_reduce #41"

  const std::uint32_t sequence;  // its place in the order of collectives
  core::time_point since{};      // when it was added to those in progress
  flight::handle record{};       // its place in the recording, if it has one
  bool noticed = false;

 protected:
  ~running_collective() = default;
};

class collective_order {
 public:
  // Compares numbers, which start again after 2^31: tags are not negative.
  static bool precedes(std::uint32_t a, std::uint32_t b) noexcept {
    return a != b && ((b - a) & 0x7fffffffU) < 0x40000000U;
  }

  struct started_collective {
    std::uint32_t sequence = 0;
    int differs_from = -1;      // a rank of the world that has called another collective under this number
    p2p::fingerprint theirs{};  // which one
  };
  // Gives the next number to a collective of this rank.
  started_collective start(const p2p::fingerprint& mine) noexcept;
  // Called when a frame of collective `sequence` comes from `peer`. Returns this rank's call if it differs; null if it
  // is the same, or has still to come.
  const p2p::fingerprint* compare(int peer, std::uint32_t sequence, const p2p::fingerprint& theirs) noexcept;

  std::uint32_t next() const noexcept { return next_; }
  std::uint32_t last() const noexcept { return next_ - 1; }
  // What this rank has called under this number; null if it has not, or that is forgotten.
  const p2p::fingerprint* called(std::uint32_t sequence) const noexcept {
    const place& p = places_[sequence % remembered];
    return p.started && p.sequence == sequence ? &p.print : nullptr;
  }

  // Counts `c` as in progress until it unlinks itself.
  void add(running_collective& c) noexcept { running_.push_back(c); }
  using collectives = base::intrusive_list<running_collective, running_tag>;
  const collectives& running() const noexcept { return running_; }
  bool is_running(std::uint32_t sequence) const noexcept;
  // The first collective that is not complete on this rank. `also` counts as not complete although it does not run.
  std::uint32_t first_open(std::uint32_t also = 0) const noexcept;

 private:
  struct place {
    std::uint32_t sequence = 0;
    bool started = false;  // started by this rank; otherwise first seen from `peer`
    int peer = -1;
    p2p::fingerprint print{};
  };
  static constexpr std::size_t remembered = 64;

  std::uint32_t next_ = 1;
  std::array<place, remembered> places_{};
  collectives running_;
};

}  // namespace tutti::comm
