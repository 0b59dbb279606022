// SPDX-License-Identifier: Apache-2.0
// handshake: the first bytes of every connection identify the peer, and prove that both sides know the secret.
//
//   connecting side -> magic, version, purpose
//   accepting side  -> magic, version, nonce A
//   connecting side -> epoch, world, rank, wanted rank, nonce B,
//                      HMAC-SHA256(secret, all that this side has sent and A)
//   accepting side  -> verdict, HMAC-SHA256(secret, the proof above and the verdict)
//
// The connecting side sends at once: Linux silently drops a TCP connection that is half made when its listener
// closes, and only data sent into it bring the reset.
//
// If both preambles say TLS, it starts after nonce A. The proofs then cover a value that only the two ends of
// that session have. A man in the middle has two sessions, and no proof that fits both.
//
// All sizes are fixed. Nothing is allocated for a peer before its proof has been checked, and a replayed
// proof fails because nonce A differs. The two proofs begin with different words, so that neither can be sent
// back as the other. Without a secret the key is empty: worlds and ranks are told apart, attackers are not kept
// out, and listeners are therefore on loopback.
#pragma once

#include "core/platform.hpp"
#include "core/socket_io.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <tutti/error.hpp>
#include <tutti/task.hpp>

namespace tutti::core {

enum class purpose : std::uint8_t {
  store = 1,
  tcp_link = 2,
  shm_link = 3,
  launcher = 4,
  tcp_further = 5,  // one more connection of a TCP link; a listener for tcp_link accepts it
  ucx_link = 6
};

struct identity {
  purpose what = purpose::store;
  std::uint64_t world = 0;  // 0 for store and launcher: the world is not known yet
  std::uint32_t epoch = 0;
  std::int32_t rank = -1;  // of the connecting side; for a launcher its node
};

// The reason of an accepting side's refusal, sent so that the peer's error can name it.
enum class verdict : std::uint8_t {
  accepted = 1,
  unauthorized,
  wrong_world,
  wrong_rank,
  duplicate,
  wrong_version,
  use_other,
  wrong_certificate,
  given_up
};

// For both sides: later data are still in the socket. `socket` and `secret` outlive the task.

// Runs the connecting side. Throws errc::unauthorized (a side could not prove itself), protocol (no tutti of
// this version is there), join_failed (the peer's verdict as text), peer_failed (the connection ended), timed_out
// or cancelled. Returns `accepted`; `use_other` if both sides connected at once and the peer keeps its own connection;
// or `given_up` if the peer has ended its link to this rank.
task<verdict> greet(stream_socket& socket, const std::string& secret, identity mine, std::int32_t wanted_rank,
                    time_point deadline);

// Runs the first half of the accepting side: reads and checks the peer's identity. Answers an unauthenticated
// peer as far as it would understand, and throws what greet() throws. `my_rank` is the one to be wanted (-1: any).
struct greeting {
  identity peer;
  std::array<std::uint8_t, 32> transcript{};  // what the answer is bound to
};
task<greeting> receive_greeting(stream_socket& socket, const std::string& secret, purpose expected,
                                std::uint64_t world, std::int32_t my_rank, time_point deadline);
// Runs the second half, once the caller knows whether it accepts this peer.
task<> answer_greeting(stream_socket& socket, const std::string& secret, const greeting& from, verdict answer,
                       time_point deadline);

}  // namespace tutti::core
