// SPDX-License-Identifier: Apache-2.0
// Both sides of the handshake against any bytes of a peer, or a valid proof with arbitrary fields. Admitting
// a peer without the secret is a finding.
#include "base/hmac.hpp"
#include "base/little_endian.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"
#include "fuzz/targets.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <exception>
#include <string>

namespace tutti::fuzz {
namespace {

constexpr std::uint64_t world = 77;
constexpr std::int32_t my_rank = 2;
const std::string secret = "what all ranks know";

struct ends {
  ends() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) std::abort();
    near.assign(boost::asio::local::stream_protocol(), fds[0]);
  }
  ~ends() { ::close(fds[1]); }
  void say(bytes all) { (void)!::send(fds[1], all.data(), all.size(), MSG_NOSIGNAL); }
  std::size_t hear(std::span<std::uint8_t> into) {
    const ssize_t got = ::recv(fds[1], into.data(), into.size(), 0);
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  void hang_up() { ::shutdown(fds[1], SHUT_WR); }

  int fds[2];
  boost::asio::io_context context{1};
  core::stream_socket near{context};
};

struct outcome {
  bool over = false;
  bool let_in = false;
  core::identity who;
};

task<> accept_from(core::stream_socket* socket, outcome* result) {
  try {
    const core::greeting from = co_await core::receive_greeting(*socket, secret, core::purpose::tcp_link,
                                                                world, my_rank, core::time_point::max());
    result->who = from.peer;
    co_await core::answer_greeting(*socket, secret, from, core::verdict::accepted, core::time_point::max());
    result->let_in = true;
  } catch (const error&) {
  }
}

task<> connect_to(core::stream_socket* socket, outcome* result) {
  core::identity mine;
  mine.what = core::purpose::tcp_link;
  mine.world = world;
  mine.rank = 1;
  try {
    const core::verdict v = co_await core::greet(*socket, secret, mine, my_rank, core::time_point::max());
    result->let_in = v == core::verdict::accepted || v == core::verdict::use_other;
    TUTTI_INVARIANT(result->let_in);
  } catch (const error&) {
  }
}

void start(core::running_task& running, task<> body, outcome& result) {
  running.start(
      std::move(body),
      [](void* of, std::exception_ptr failure) noexcept {
        TUTTI_INVARIANT(!failure);
        static_cast<outcome*>(of)->over = true;
      },
      &result);
}

void finish(ends& both, const outcome& result) {
  both.hang_up();
  for (int i = 0; i < 100 && !result.over; ++i) {
    both.context.restart();
    both.context.poll();
  }
  TUTTI_INVARIANT(result.over);
}

}  // namespace

void handshake_accepting(bytes input) {
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  ends both;
  outcome result;
  core::running_task running;
  if (mode % 2 == 0) {
    both.say(in.rest());
    start(running, accept_from(&both.near, &result), result);
    finish(both, result);
    TUTTI_INVARIANT(!result.let_in);
    return;
  }
  // A peer with the secret that sends arbitrary fields.
  start(running, accept_from(&both.near, &result), result);
  std::array<std::uint8_t, 44> offer{};
  TUTTI_INVARIANT(both.hear(offer) == offer.size());
  std::array<std::uint8_t, 64 + 32> claim{};
  std::copy(offer.begin(), offer.begin() + 12, claim.begin());
  claim[10] = in.value<std::uint8_t>() % 6;
  const auto version = in.value<std::uint8_t>();
  if (version % 8 == 0) claim[8] = version;
  base::put_little_endian(&claim[12], in.value<std::uint32_t>());
  const auto other_world = in.value<std::uint8_t>();
  base::put_little_endian(&claim[16], other_world % 4 == 0 ? other_world : world);
  base::put_little_endian(&claim[24], in.value<std::int32_t>());
  const auto wanted = in.value<std::int8_t>();
  base::put_little_endian(&claim[28], static_cast<std::int32_t>(wanted % 4));
  const bytes nonce = in.take(32);
  std::copy(nonce.begin(), nonce.end(), claim.begin() + 32);
  std::array<std::uint8_t, 16 + 44 + 64 + 32> proved{};
  std::memcpy(proved.data(), "tutti connects", 14);
  std::memcpy(proved.data() + 16, offer.data(), offer.size());
  std::memcpy(proved.data() + 60, claim.data(), 64);
  const base::digest proof = base::hmac_sha256(secret, proved);
  std::copy(proof.begin(), proof.end(), claim.begin() + 64);
  const auto flip = in.value<std::uint16_t>();
  const bool flipped = flip < 8 * claim.size();
  if (flipped) claim[flip / 8] ^= static_cast<std::uint8_t>(1U << (flip % 8));
  const bytes replay = in.rest();
  both.say(claim);
  both.say(replay);
  finish(both, result);
  const core::purpose what{claim[10]};
  const bool right = !flipped && (what == core::purpose::tcp_link || what == core::purpose::tcp_further) &&
                     claim[8] == 2 && base::get_little_endian<std::uint64_t>(&claim[16]) == world &&
                     base::get_little_endian<std::int32_t>(&claim[28]) == my_rank;
  TUTTI_INVARIANT(result.let_in == right);
}

void handshake_connecting(bytes input) {
  reader in(input);
  const auto mode = in.value<std::uint8_t>();
  ends both;
  outcome result;
  core::running_task running;
  if (mode % 2 == 0) {
    both.say(in.rest());
  } else {
    // A listener of this version without the secret.
    std::array<std::uint8_t, 44> offer{'t', 'u', 't', 't', 'i', '\r', '\n', 0, 2};
    const bytes nonce = in.take(32);
    std::copy(nonce.begin(), nonce.end(), offer.begin() + 12);
    both.say(offer);
    std::array<std::uint8_t, 40> answer{};
    const bytes said = in.take(answer.size());
    std::copy(said.begin(), said.end(), answer.begin());
    both.say(answer);
    both.say(in.rest());
  }
  start(running, connect_to(&both.near, &result), result);
  finish(both, result);
  TUTTI_INVARIANT(!result.let_in);
}

}  // namespace tutti::fuzz
