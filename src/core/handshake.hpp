// SPDX-License-Identifier: Apache-2.0
// The first bytes of every connection: who is there, and that both know the job's secret.
//
//   connecting side -> magic, version, purpose
//   accepting side  -> magic, version, nonce A
//   connecting side -> epoch, world, rank, wanted rank, nonce B,
//                      HMAC-SHA256(secret, all that this side has sent and A)
//   accepting side  -> verdict, HMAC-SHA256(secret, the proof above and the verdict)
//
// The connecting side speaks at once because Linux forgets, without a word, a TCP connection that was half
// made when its listener closed: only what is sent into it brings the reset. Without that it would wait until
// its deadline.
//
// Where both sides use TLS (the preambles say so) it starts behind the nonce A, and the proofs cover a value
// that only the two ends of that session have: who sits in between has two sessions, and no proof that fits
// both.
//
// Fixed sizes throughout: nothing is allocated for a peer before its proof has been checked, and a replayed
// proof fails for want of nonce A. The two proofs begin with different words, so that neither can be sent
// back as the other. Without a secret the key is empty: the exchange then tells worlds and ranks apart and
// keeps unauthenticated peers out by accident only, which is why listeners without a secret are on loopback.
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
  tcp_further = 5  // one more connection of a TCP link
};
// What a listener is there for.
struct purposes {
  purposes(purpose only) noexcept : one(only), other(only) {}
  purposes(purpose a, purpose b) noexcept : one(a), other(b) {}
  bool has(purpose p) const noexcept { return p == one || p == other; }
  purpose one;
  purpose other;
};

struct identity {
  purpose what = purpose::store;
  std::uint64_t world = 0;  // 0 for store and launcher: the world is not known yet
  std::uint32_t epoch = 0;
  std::int32_t rank = -1;  // the connecting side's; of a launcher its node
};

// Why an accepting side says no; sent to the peer, so that its error can name it.
enum class verdict : std::uint8_t {
  accepted = 1,
  unauthorized,
  wrong_world,
  wrong_rank,
  duplicate,
  wrong_version,
  use_other
};

// Both sides: nothing is read past the handshake, so what follows it is still in the socket. `socket` and
// `secret` outlive the task.

// Connecting side. Throws errc::unauthorized (either side could not prove itself), protocol (no tutti of this
// version is there), join_failed (the peer's verdict, in words), peer_failed (the connection ended),
// timed_out, cancelled. `use_other` (both sides connected at once, and the peer keeps the connection that it
// started) is returned, not thrown.
task<verdict> greet(stream_socket& socket, const std::string& secret, identity mine, std::int32_t wanted_rank,
                    time_point deadline);

// Accepting side, first half: reads and proves the peer's identity; unauthenticated peers are answered, as
// far as they would understand it, and given up by throwing what greet() throws. Nothing in `peer` is to be
// believed before it returns. `my_rank` is compared with the rank the peer wants to talk to (-1: any).
struct greeting {
  identity peer;
  std::array<std::uint8_t, 32> transcript{};  // what the answer is bound to
};
task<greeting> receive_greeting(stream_socket& socket, const std::string& secret, purposes expected,
                                std::uint64_t world, std::int32_t my_rank, time_point deadline);
// Second half, once the caller knows whether it wants this peer.
task<> answer_greeting(stream_socket& socket, const std::string& secret, const greeting& from, verdict answer,
                       time_point deadline);

}  // namespace tutti::core
