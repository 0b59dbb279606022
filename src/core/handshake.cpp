// SPDX-License-Identifier: Apache-2.0
#include "core/handshake.hpp"

#include "base/hmac.hpp"
#include "base/little_endian.hpp"
#include "base/throw_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::core {
namespace {

// The line end in the middle shows at once when a text protocol or text-mode transfer damages the bytes.
constexpr std::array<std::uint8_t, 8> magic = {'t', 'u', 't', 't', 'i', '\r', '\n', 0};
constexpr std::uint16_t version = 2;
constexpr std::uint8_t uses_tls = 1;  // a flag of the preamble

constexpr std::size_t preamble_bytes = 12;  // magic, version, purpose or 0, flags
constexpr std::size_t nonce_bytes = 32;
constexpr std::size_t proof_bytes = sizeof(base::digest);
constexpr std::size_t offer_bytes = preamble_bytes + nonce_bytes;
constexpr std::size_t claim_bytes =
    preamble_bytes + 4 + 8 + 4 + 4 + nonce_bytes;  // epoch, world, rank, wanted rank
constexpr std::size_t answer_bytes = 8 + proof_bytes;

using offer = std::array<std::uint8_t, offer_bytes>;
using claim = std::array<std::uint8_t, claim_bytes + proof_bytes>;
using answer_frame = std::array<std::uint8_t, answer_bytes>;

void put_preamble(std::uint8_t* at, std::uint8_t what, const stream_socket& socket) noexcept {
  std::copy(magic.begin(), magic.end(), at);
  base::put_little_endian(at + 8, version);
  at[10] = what;
  at[11] = socket.identity() ? uses_tls : std::uint8_t{0};
}

std::uint16_t version_of(const std::uint8_t* preamble) noexcept {
  return base::get_little_endian<std::uint16_t>(preamble + 8);
}

// The proof also covers the TLS session, if there is one. A proof given in one session is invalid in another,
// such as that of a man in the middle with the other side.
base::digest proof_of_claim(const std::string& secret, const stream_socket& socket, const offer& offered,
                            const claim& claimed) {
  constexpr std::size_t label = 16;
  std::array<std::uint8_t, label + offer_bytes + claim_bytes + sizeof(tls_session::binding_bytes)> all{};
  std::memcpy(all.data(), "tutti connects", 14);
  std::memcpy(all.data() + label, offered.data(), offer_bytes);
  std::memcpy(all.data() + label + offer_bytes, claimed.data(), claim_bytes);
  if (const tls_session* const session = socket.tls()) {
    tls_session::binding_bytes binding{};
    if (!session->bind(binding))
      throw error(errc::system, "OpenSSL cannot bind a TLS session to its connection: is it version 3?");
    std::memcpy(all.data() + label + offer_bytes + claim_bytes, binding.data(), binding.size());
  }
  return base::hmac_sha256(secret, all);
}

base::digest proof_of_answer(const std::string& secret, const std::array<std::uint8_t, 32>& transcript,
                             verdict answer) {
  constexpr std::size_t label = 16;
  std::array<std::uint8_t, label + proof_bytes + 1> all{};
  std::memcpy(all.data(), "tutti accepts", 13);
  std::memcpy(all.data() + label, transcript.data(), transcript.size());
  all.back() = static_cast<std::uint8_t>(answer);
  return base::hmac_sha256(secret, all);
}

[[noreturn]] void throw_version(const stream_socket& socket, unsigned theirs) {
  base::throw_error(errc::protocol,
                    "{} speaks version {} of tutti's handshake, this program version {}: build all "
                    "ranks with the same tutti",
                    peer_text(socket), theirs, version);
}

// Both sides see the difference, and both stop.
void check_tls(const stream_socket& socket, const std::uint8_t* preamble) {
  const bool theirs = (preamble[11] & uses_tls) != 0;
  const bool mine = socket.identity() != nullptr;
  if (theirs == mine) return;
  base::throw_error(
      errc::protocol,
      "{} {} TLS, and this process {}: set TUTTI_TLS to the same for all ranks and for tutti-run "
      "on all nodes (init_options::tls counts for ranks only)",
      peer_text(socket), theirs ? "uses" : "does not use", mine ? "uses it" : "does not use it");
}

// Whether the peer's certificate, if it names ranks, names this one. A launcher is no rank.
bool owns_certificate(const stream_socket& socket, purpose what, std::int32_t rank) {
  if (socket.tls() == nullptr || (what != purpose::launcher && rank < 0)) return true;
  return socket.tls()->allows_rank(what == purpose::launcher ? -1 : rank);
}

// How a sentence about the process with the wrong certificate ends.
std::string misuse_of_certificate(purpose what, std::int32_t rank) {
  if (what == purpose::launcher)
    return "not tutti-run: its TUTTI_TLS_CERTIFICATE names ranks; give tutti-run one that names none (%r in "
           "the name stands for launcher)";
  return fmt::format("not rank {}: its TUTTI_TLS_CERTIFICATE is for other ranks", rank);
}

// Checks the bytes as they come: a peer that is not tutti may never send a whole preamble.
task<> read_preamble(stream_socket& socket, std::uint8_t* into, const char* complaint, time_point deadline) {
  for (std::size_t read = 0; read < preamble_bytes;) {
    const std::size_t got = co_await read_some(socket, {into + read, preamble_bytes - read}, deadline);
    if (got == 0) base::throw_error(errc::peer_failed, "{} closed the connection", peer_text(socket));
    read += got;
    if (!std::equal(into, into + std::min(read, magic.size()), magic.begin()))
      base::throw_error(errc::protocol, fmt::runtime(complaint), peer_text(socket));
  }
}

// Why a peer did not accept this side. In the text: {0} the peer, {1} the wanted rank, {2} this one, {3} the misuse.
struct rejection {
  verdict answer;
  errc why;
  const char* text;
};
constexpr rejection rejections[] = {
    {verdict::unauthorized, errc::unauthorized,
     "{0} does not accept this process's proof: the secrets differ; set TUTTI_SECRET to the same text on all "
     "ranks"},
    {verdict::wrong_world, errc::join_failed,
     "{0} belongs to another world: a process of another or an earlier job listens at that address"},
    {verdict::wrong_rank, errc::join_failed,
     "{0} is not rank {1}: the address belongs to another process by now"},
    {verdict::duplicate, errc::join_failed,
     "{0} knows another rank {2} already: give each process its own RANK, or start the program with "
     "tutti-run"},
    {verdict::wrong_certificate, errc::unauthorized, "{0} says that this process is {3}"}};

[[noreturn]] void throw_verdict(const stream_socket& socket, verdict answer, const identity& mine,
                                std::int32_t wanted) {
  const std::string peer = peer_text(socket);
  for (const rejection& r : rejections)
    if (r.answer == answer)
      base::throw_error(r.why, fmt::runtime(r.text), peer, wanted, mine.rank,
                        misuse_of_certificate(mine.what, mine.rank));
  base::throw_error(errc::protocol, "{} answered with the unknown verdict {}", peer,
                    static_cast<unsigned>(answer));
}

// An unauthenticated peer gets no proof.
answer_frame answer_with(verdict answer, const base::digest& proof = {}) noexcept {
  answer_frame frame{};
  frame[0] = static_cast<std::uint8_t>(answer);
  base::put_little_endian(&frame[2], version);
  std::copy(proof.begin(), proof.end(), frame.begin() + 8);
  return frame;
}

// Sends a last answer to a rejected peer; whether it arrives does not matter.
task<> turn_away(stream_socket& socket, answer_frame last, time_point deadline) {
  try {
    co_await write_all(socket, last, deadline);
  } catch (const error&) {
  }
}

}  // namespace

task<verdict> greet(stream_socket& socket, const std::string& secret, identity mine, std::int32_t wanted_rank,
                    time_point deadline) {
  claim claimed{};
  put_preamble(claimed.data(), static_cast<std::uint8_t>(mine.what), socket);
  co_await write_all(socket, std::span(claimed).first(preamble_bytes), deadline);

  offer offered{};
  // The preamble first: a peer that is not tutti may never send more.
  co_await read_preamble(socket, offered.data(),
                         "something that is not tutti listens at {}: choose another port, or stop it",
                         deadline);
  if (version_of(offered.data()) != version) throw_version(socket, version_of(offered.data()));
  check_tls(socket, offered.data());
  co_await read_exactly(socket, std::span(offered).subspan(preamble_bytes), deadline);
  if (socket.identity()) {
    co_await start_tls(socket, tls_session::side::connecting, deadline);
    if (!owns_certificate(socket, mine.what, wanted_rank))
      base::throw_error(errc::unauthorized, "{} is {}", peer_text(socket),
                        misuse_of_certificate(mine.what, wanted_rank));
  }

  std::uint8_t* at = claimed.data();
  base::put_little_endian(at + 12, mine.epoch);
  base::put_little_endian(at + 16, mine.world);
  base::put_little_endian(at + 24, mine.rank);
  base::put_little_endian(at + 28, wanted_rank);
  base::fill_random(std::span(claimed).subspan(32, nonce_bytes));
  const base::digest proof = proof_of_claim(secret, socket, offered, claimed);
  std::copy(proof.begin(), proof.end(), claimed.begin() + claim_bytes);
  co_await write_all(socket, std::span(claimed).subspan(preamble_bytes), deadline);

  answer_frame answered{};
  co_await read_exactly(socket, answered, deadline);
  const verdict answer{answered[0]};
  // These two verdicts come from a peer that has not proved itself: they can only end the attempt.
  if (answer == verdict::unauthorized) throw_verdict(socket, answer, mine, wanted_rank);
  if (answer == verdict::wrong_version)
    throw_version(socket, base::get_little_endian<std::uint16_t>(&answered[2]));
  const base::digest expected = proof_of_answer(secret, proof, answer);
  if (!base::equal_in_constant_time(std::span(answered).subspan(8), expected))
    base::throw_error(errc::unauthorized,
                      "{} cannot prove that it knows the job's secret: another job's process "
                      "listens there, or TUTTI_SECRET differs",
                      peer_text(socket));
  if (answer != verdict::accepted && answer != verdict::use_other && answer != verdict::given_up)
    throw_verdict(socket, answer, mine, wanted_rank);
  co_return answer;
}

task<greeting> receive_greeting(stream_socket& socket, const std::string& secret, purpose expected,
                                std::uint64_t world, std::int32_t my_rank, time_point deadline) {
  offer offered{};
  put_preamble(offered.data(), 0, socket);
  base::fill_random(std::span(offered).subspan(preamble_bytes));
  co_await write_all(socket, offered, deadline);

  claim claimed{};
  // The preamble first, so that an unauthenticated peer that sends less than a claim is recognised at once.
  co_await read_preamble(socket, claimed.data(), "{} does not speak tutti's protocol", deadline);
  if (version_of(claimed.data()) != version) {
    co_await turn_away(socket, answer_with(verdict::wrong_version), deadline);
    throw_version(socket, version_of(claimed.data()));
  }
  check_tls(socket, claimed.data());
  if (socket.identity()) co_await start_tls(socket, tls_session::side::accepting, deadline);
  co_await read_exactly(socket, std::span(claimed).subspan(preamble_bytes), deadline);

  const base::digest proof = proof_of_claim(secret, socket, offered, claimed);
  if (!base::equal_in_constant_time(std::span(claimed).subspan(claim_bytes), proof)) {
    co_await turn_away(socket, answer_with(verdict::unauthorized), deadline);
    base::throw_error(errc::unauthorized,
                      "{} could not prove that it knows the job's secret: an unauthenticated peer, or a "
                      "rank with another TUTTI_SECRET",
                      peer_text(socket));
  }
  greeting from;
  from.transcript = proof;
  const std::uint8_t* const at = claimed.data();
  from.peer.what = purpose{at[10]};
  from.peer.epoch = base::get_little_endian<std::uint32_t>(at + 12);
  from.peer.world = base::get_little_endian<std::uint64_t>(at + 16);
  from.peer.rank = base::get_little_endian<std::int32_t>(at + 24);
  const auto wanted = base::get_little_endian<std::int32_t>(at + 28);
  const std::string who = peer_text(socket);
  // A wrong purpose means that the peer reached another kind of listener, and so one of another world.
  const bool is_further = expected == purpose::tcp_link && from.peer.what == purpose::tcp_further;
  verdict answer = verdict::accepted;
  errc why = errc::join_failed;
  std::string text;
  if (!owns_certificate(socket, from.peer.what, from.peer.rank)) {
    answer = verdict::wrong_certificate;
    why = errc::unauthorized;
    text = fmt::format("{} is {}", who, misuse_of_certificate(from.peer.what, from.peer.rank));
  } else if ((from.peer.what != expected && !is_further) || from.peer.world != world) {
    answer = verdict::wrong_world;
    text = fmt::format("{} (rank {}) wants to talk to another world: a process of another or an earlier job",
                       who, from.peer.rank);
  } else if (my_rank >= 0 && wanted != my_rank) {
    answer = verdict::wrong_rank;
    text = fmt::format("rank {} at {} wants to talk to rank {}, and this is rank {}", from.peer.rank, who,
                       wanted, my_rank);
  }
  if (answer != verdict::accepted) {
    co_await turn_away(socket, answer_with(answer, proof_of_answer(secret, proof, answer)), deadline);
    throw error(why, text);
  }
  co_return from;
}

task<> answer_greeting(stream_socket& socket, const std::string& secret, const greeting& from, verdict answer,
                       time_point deadline) {
  const answer_frame frame = answer_with(answer, proof_of_answer(secret, from.transcript, answer));
  co_await write_all(socket, frame, deadline);
}

}  // namespace tutti::core
