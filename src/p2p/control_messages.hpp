// SPDX-License-Identifier: Apache-2.0
// What endpoints tell each other beside messages, and the frames that say it. What is read from one may come
// from a process that lies: it gives a value that can be used, or none.
#pragma once

#include "p2p/transfer_states.hpp"
#include "transport/link.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tutti/error.hpp>
#include <vector>

namespace tutti::p2p {

// Which communicators a failure reaches.
enum class extent : std::uint8_t {
  one,      // the one that it is told of
  children  // that one and those that were made from it
};

// What a rank that fails a communicator tells the other members.
struct failure_notice {
  errc why = errc::success;
  const std::string& text;
  extent reach = extent::one;
  std::span<const int> failed = {};  // ranks of the world that the sender knows to have failed
  // The first collective that fails with it; those before need nothing more from whoever failed the
  // communicator. 0: all fail.
  std::uint32_t first = 0;
};

// The same, as it came or is kept.
struct told_failure {
  errc why = errc::success;
  std::string text;
  extent reach = extent::one;
  std::vector<int> failed;
  std::uint32_t first = 0;

  failure_notice notice() const noexcept { return {why, text, reach, failed, first}; }
};

// How far a rank has come with a collective.
struct collective_progress {
  enum class state : std::uint64_t { not_called, waiting, done, no_communicator };
  state at = state::no_communicator;
  std::uint64_t last = 0;  // the last collective that it called, with its fingerprint
  fingerprint print{};
  int waits_for = -1;  // rank of the world, where it waits for one
};

// Frames: the communicator of `context` has failed at the sender, for a reason that is the payload;
transport::frame failure_frame(std::uint32_t context, const failure_notice& what) noexcept;
std::vector<std::byte> payload_of(const failure_notice& what);  // at most 4096 ranks, and 4000 bytes of text
// its members agree on who is left, in this round, by a payload that is the upper layers';
transport::frame agreement_frame(std::uint32_t context, std::uint32_t round) noexcept;
// the sender has been waiting in this collective;
transport::frame notice_frame(std::uint32_t context, std::uint32_t sequence,
                              const fingerprint& print) noexcept;
// where is the receiver with this collective?
transport::frame inquiry_frame(std::uint32_t context, std::uint32_t sequence) noexcept;
// there (the answer);
transport::frame progress_frame(std::uint32_t context, std::uint32_t sequence,
                                const collective_progress& here) noexcept;
// so much more may be sent eagerly: nothing, of a frame that is only to be noticed.
transport::frame credit_frame(std::uint64_t bytes) noexcept;

// `ranks`: of the world.
told_failure failure_of(const transport::frame& head, std::span<const std::byte> payload,
                        std::size_t ranks) noexcept;
std::optional<collective_progress> progress_of(const transport::frame& head, std::size_t ranks) noexcept;

}  // namespace tutti::p2p
