// SPDX-License-Identifier: Apache-2.0
// Control messages: what endpoints tell each other besides messages of programs. Each is a struct that encodes
// itself as a frame and decodes the frame that comes. Frames may come from a process that lies: decode()
// returns a usable value or none.
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

// A frame that belongs to no transfer, with all of its payload.
struct control_frame {
  frame head;
  std::vector<std::byte> payload = {};
};

// The reason that a frame names. One that is none, or success, becomes errc::protocol.
errc reason_of(std::uint32_t code) noexcept;

// Which communicators a failure reaches.
enum class extent : std::uint8_t {
  one,       // the reported one
  children,  // that one and those made from it
  unmade     // as children; and a rank that lacks the reported one is not to make it
};

// What the text of a failure names.
enum class subject : std::uint8_t {
  other,      // a rank, a device, a call of the program
  collective  // the collective of this communicator that failed, as "all_reduce #41 on world"
};

// The communicator has failed at the sender. `ranks` of decode() is the size of the world, here and below.
struct failure_message {
  errc why = errc::success;
  std::string text;  // at most 4000 bytes are sent
  extent reach = extent::one;
  std::vector<int> failed =
      {};  // ranks of the world that the sender knows to have failed; at most 4096 are sent
  // The first collective that fails with it; earlier ones need nothing more from the rank that failed the
  // communicator. 0: all fail.
  std::uint32_t first = 0;
  subject names = subject::other;

  control_frame encode(std::uint32_t context) const;
  static failure_message decode(const frame& head, std::span<const std::byte> payload, std::size_t ranks);
};

// The members of the communicator agree in this round on who is left.
struct agreement_message {
  std::uint32_t round = 0;
  std::span<const std::byte> payload = {};  // belongs to the upper layers

  control_frame encode(std::uint32_t context) const {
    return {{.kind = frame_kind::agree,
             .context = context,
             .tag = static_cast<std::int32_t>(round),
             .length = payload.size()},
            {payload.begin(), payload.end()}};
  }
  // `payload` must outlive the result.
  static agreement_message decode(const frame& head, std::span<const std::byte> payload) noexcept {
    return {static_cast<std::uint32_t>(head.tag), payload};
  }
};

// The sender has been waiting in this collective. The receiver compares it as it does every frame of a collective.
struct notice_message {
  std::uint32_t sequence = 0;
  fingerprint print{};

  control_frame encode(std::uint32_t context) const {
    return {{.kind = frame_kind::notice,
             .context = context,
             .tag = static_cast<std::int32_t>(sequence),
             .fingerprint = print}};
  }
};

// Asks how far the receiver is with this collective. The answer is a progress_message.
struct inquiry_message {
  std::uint32_t sequence = 0;

  control_frame encode(std::uint32_t context) const {
    return {{.kind = frame_kind::ask, .context = context, .tag = static_cast<std::int32_t>(sequence)}};
  }
  static inquiry_message decode(const frame& head) noexcept { return {static_cast<std::uint32_t>(head.tag)}; }
};

// How far the sender is with a collective.
struct progress_message {
  enum class state : std::uint64_t { not_called, waiting, done, no_communicator };
  std::uint32_t sequence = 0;  // the collective that was asked about
  state at = state::no_communicator;
  std::uint64_t last = 0;  // the last collective that it called, with its fingerprint
  fingerprint print{};
  int waits_for = -1;  // rank of the world, if it waits for one

  control_frame encode(std::uint32_t context) const;
  static std::optional<progress_message> decode(const frame& head, std::size_t ranks) noexcept;
};

}  // namespace tutti::p2p
