// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include "base/little_endian.hpp"
#include "comm/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tutti::comm {
namespace {

// Many times what a gatherer with a running loop needs.
constexpr auto patience_with_gatherer = std::chrono::milliseconds(200);
// How long it waits for others to say whether the round has been settled, before it gives up for all.
constexpr auto patience_of_gatherer = std::chrono::milliseconds(100);

// When two members have lost each other, usually one of them has died. The report of its end is then on its
// way to the gatherer.
constexpr auto patience_with_doubts = std::chrono::milliseconds(500);

// Finished rounds that are kept: latecomers are told how they ended.
constexpr std::size_t rounds_remembered = 1024;

constexpr std::size_t most_named = 8;
constexpr std::size_t most_text = 4000;

using bytes = std::vector<std::byte>;

// Members of a communicator, by their ranks in it, as bits.
std::size_t bits_bytes(std::size_t ranks) noexcept { return (ranks + 7) / 8; }
bool has_bit(const std::byte* bits, std::size_t i) noexcept {
  return (bits[i / 8] & (std::byte{1} << (i % 8))) != std::byte{0};
}
template <class F>
bytes bits_of(std::size_t ranks, const F& is_in) {
  bytes bits(bits_bytes(ranks));
  for (std::size_t i = 0; i < ranks; ++i)
    if (is_in(i)) bits[i / 8] |= std::byte{1} << (i % 8);
  return bits;
}

template <class T>
void put(bytes& to, T value) {
  std::uint8_t raw[sizeof(T)];
  base::put_little_endian(raw, value);
  for (const std::uint8_t b : raw) to.push_back(std::byte{b});
}
void append(bytes& to, std::span<const std::byte> more) { to.insert(to.end(), more.begin(), more.end()); }
template <class T>
T get(const std::byte* from) noexcept {
  return base::get_little_endian<T>(reinterpret_cast<const std::uint8_t*>(from));
}
// A frame: its first byte is the word.
template <class Word>
bytes frame_of(Word what, std::span<const std::byte> rest) {
  bytes made{static_cast<std::byte>(what)};
  append(made, rest);
  return made;
}

// Offsets in a frame with a reason: behind the word come the reason and its text.
constexpr std::size_t reason_at = 1, reason_text_at = 3;
bytes reason_bytes(errc why, const std::string& text) {
  bytes made;
  put(made, static_cast<std::uint16_t>(why));
  append(made, std::as_bytes(std::span(text).first(std::min(text.size(), most_text))));
  return made;
}
errc reason_in(std::span<const std::byte> payload) noexcept {
  return p2p::reason_of(get<std::uint16_t>(payload.data() + reason_at));
}
std::string text_in(std::span<const std::byte> payload) {
  const auto text = payload.subspan(reason_text_at);
  return std::string(reinterpret_cast<const char*>(text.data()), text.size());
}

constexpr std::size_t settled_id_at = 1, settled_bits_at = 5;

}  // namespace

struct agreement::round {
  round(agreement& a, key k)
      : of(a), name(k), timer(&expire, this), doubts([](void* r) noexcept { decide(r); }, this) {}
  static void decide(void* self) noexcept {
    auto& r = *static_cast<round*>(self);
    r.doubts_over = true;
    r.of.advance(r);
  }

  agreement& of;
  const key name;
  caller* who = nullptr;  // null: not called here yet, over, or abandoned
  bool abandoned = false;
  std::vector<int> members;  // ranks of the world; for a round that was called here
  std::string timeout_text;
  p2p::failure_message cause;  // why the communicator has failed, for members that have not heard of it
  // The members that wait for this rank's word, with the members that each cannot reach any more, as bits;
  // and the members that gather themselves.
  std::map<int, bytes> joined;
  std::set<int> asked;
  std::set<int> absent;     // alive, but take no part
  int gatherer = -1;        // the one that this rank has joined
  bool invited = false;     // this rank gathers and has said so
  std::size_t awaited = 0;  // the members before this place have joined it, or gone
  bool leaving = false;     // it stops waiting, for this reason
  errc why = errc::success;
  std::string text;
  bytes outcome;  // as it is told to others; empty: none yet
  core::timer timer;
  core::timer doubts;
  bool doubts_over = false;

  bool open() const noexcept { return outcome.empty(); }
  bool called() const noexcept { return who != nullptr || abandoned; }
};

agreement::agreement(world& w) noexcept : world_(w) {}
agreement::~agreement() = default;

agreement::round& agreement::at(std::uint32_t context, std::uint32_t number) {
  const key k{context, number};
  const auto found = rounds_.find(k);
  if (found != rounds_.end()) return *found->second;
  if (settled_order_.size() >= rounds_remembered) {
    rounds_.erase(settled_order_.front());
    settled_order_.erase(settled_order_.begin());
  }
  return *rounds_.emplace(k, std::make_unique<round>(*this, k)).first->second;
}

agreement::round* agreement::round_of(const caller& who) noexcept {
  for (const auto& [k, r] : rounds_)
    if (r->who == &who) return r.get();
  return nullptr;
}

// A member that is to take part first hears why the communicator has failed.
void agreement::send(const round& r, int peer, word what, const bytes& rest) {
  const bytes payload = frame_of(what, rest);
  if (what == word::join || what == word::invite)
    world_.endpoint().control().send(r.name.first, peer, r.cause);
  world_.endpoint().control().send(r.name.first, peer, p2p::agreement_message{r.name.second, payload});
}

bool agreement::has_gone(const round& r, int member) const noexcept {
  return world_.endpoint().peers().gone(member) || r.absent.contains(member);
}

// Ranks of the world; none while the communicator is not known here.
std::span<const int> agreement::members_of(const round& r) const noexcept {
  const communicator_state* const c = r.members.empty() ? world_.find(r.name.first) : nullptr;
  return c != nullptr ? c->members() : r.members;
}

// Whether this rank is the first of those that have not gone.
bool agreement::gathers(const round& r) const noexcept {
  for (const int m : members_of(r)) {
    if (m == world_.info().rank) return true;
    if (!has_gone(r, m)) return false;
  }
  return false;
}

// ---- taking part ----

void agreement::join(communicator_state& c, caller& who, bool has_deadline) {
  round& r = at(c.message_context(), c.next_round());
  r.members = c.members();
  r.timeout_text = c.timeout_text();
  r.cause = c.failure_to_tell(p2p::extent::children);
  r.who = &who;
  core::engine& engine = world_.loop().engine();
  engine.begin_wait();
  if (!r.open()) return tell_caller(r);
  if (!has_deadline) engine.timers().arm(r.timer, engine.platform().now() + c.timeout());
  advance(r);
}

// Called when a member has gone or joined.
void agreement::advance(round& r) {
  if (!r.open() || !r.called()) return;
  for (const int m : r.members) {
    if (m == world_.info().rank) {
      // An earlier gatherer may have settled the round and told others before it went: ask them.
      if (r.leaving && m == r.members.front()) return settle(r, bytes());
      return gather(r);
    }
    if (has_gone(r, m)) continue;
    if (r.gatherer == m) return;
    r.gatherer = m;
    if (r.leaving) return send(r, m, word::give_up, reason_bytes(r.why, r.text));
    return send(r, m, word::join,
                bits_of(r.members.size(), [&](std::size_t i) { return has_gone(r, r.members[i]); }));
  }
}

void agreement::gather(round& r) {
  const int self = world_.info().rank;
  if (!std::exchange(r.invited, true)) {
    for (const int m : r.members)
      if (m != self && !has_gone(r, m)) send(r, m, word::invite);
  }
  const std::size_t n = r.members.size();
  for (; r.awaited < n; ++r.awaited) {
    const int m = r.members[r.awaited];
    // Who asks, or gives up, knows of no outcome either.
    const bool known =
        m == self || has_gone(r, m) || r.joined.contains(m) || (r.leaving && r.asked.contains(m));
    if (!known) return;
  }
  if (r.leaving) return settle(r, bytes());
  std::vector<std::size_t> in;  // positions among the members
  for (std::size_t i = 0; i < n; ++i)
    if (r.members[i] == self || !has_gone(r, r.members[i])) in.push_back(i);
  const bytes here = bits_of(n, [&](std::size_t i) { return std::ranges::binary_search(in, i); });
  // If two members have lost each other, one is left out: the one that has lost more.
  std::set<std::pair<std::size_t, std::size_t>> broken;
  for (const std::size_t a : in) {
    const auto told = r.joined.find(r.members[a]);
    if (told == r.joined.end() || told->second.size() < here.size()) continue;
    for (const std::size_t b : in)
      if (has_bit(told->second.data(), b)) broken.insert(std::minmax(a, b));
  }
  while (!broken.empty()) {
    if (!r.doubts_over) {
      core::engine& engine = world_.loop().engine();
      if (!r.doubts.armed()) engine.timers().arm(r.doubts, engine.platform().now() + patience_with_doubts);
      return;
    }
    std::vector<int> lost(n);
    for (const auto& [a, b] : broken) ++lost[a], ++lost[b];
    const auto most = std::max_element(lost.rbegin(), lost.rend());  // of equals the last
    const auto worst = static_cast<std::size_t>(std::distance(most, lost.rend()) - 1);
    std::erase(in, worst);
    std::erase_if(broken, [worst](const auto& pair) { return pair.first == worst || pair.second == worst; });
  }
  std::uint32_t id = 0;
  try {
    id = world_.next_communicator_id();
  } catch (const error& e) {
    r.why = static_cast<errc>(e.code().value());
    r.text = e.what();
    return settle(r, bytes());
  }
  bytes outcome{static_cast<std::byte>(word::settled)};
  put(outcome, id);
  const bytes stay = bits_of(n, [&](std::size_t i) { return std::ranges::binary_search(in, i); });
  append(outcome, stay);
  append(outcome, bits_of(n, [&](std::size_t i) {
           const bool left_out = has_bit(here.data(), i) && r.members[i] != self;
           return !has_bit(stay.data(), i) && (left_out || world_.endpoint().peers().failed(r.members[i]));
         }));
  settle(r, std::move(outcome));
}

// Ends the round. Without an outcome it has failed for r.why.
void agreement::settle(round& r, bytes outcome) {
  if (!r.open()) return;
  if (outcome.empty()) {
    std::string text = r.text;
    if (const std::string who = missing(r); !who.empty()) text += "; " + who;
    outcome = frame_of(word::refused, reason_bytes(r.why, text));
  }
  r.outcome = std::move(outcome);
  r.timer.cancel();
  r.doubts.cancel();
  std::set<int> waiting = std::move(r.asked);
  for (const auto& [peer, gone] : r.joined) waiting.insert(peer);
  r.joined.clear();
  for (const int peer : waiting)
    world_.endpoint().control().send(r.name.first, peer, p2p::agreement_message{r.name.second, r.outcome});
  settled_order_.push_back(r.name);
  tell_caller(r);
}

void agreement::tell_caller(round& r) {
  if (!r.called()) return;
  r.timer.cancel();
  if (static_cast<word>(r.outcome[0]) == word::refused) {
    if (caller* const who = std::exchange(r.who, nullptr))
      refuse(*who, reason_in(r.outcome), text_in(r.outcome));
    return;
  }
  const auto id = get<std::uint32_t>(r.outcome.data() + settled_id_at);
  const std::byte* const stay = r.outcome.data() + settled_bits_at;
  const std::byte* const failed = stay + bits_bytes(r.members.size());
  std::vector<int> members, dead;
  bool here = false;
  for (std::size_t i = 0; i < r.members.size(); ++i) {
    if (has_bit(failed, i)) dead.push_back(r.members[i]);
    if (!has_bit(stay, i)) continue;
    members.push_back(r.members[i]);
    here = here || r.members[i] == world_.info().rank;
  }
  caller* const who = std::exchange(r.who, nullptr);
  if (who == nullptr) {
    // The others count on this rank, which no longer takes part.
    r.abandoned = false;
    if (here) decline(id, members, r.text);
    return;
  }
  if (here) {
    who->id = id;
    who->members = std::move(members);
    who->failed = std::move(dead);
    return complete(*who);
  }
  if (communicator_state* const c = world_.find(r.name.first)) c->add_failed(dead);
  refuse(*who, errc::peer_failed,
         fmt::format(
             "the others go on without {}, which is this rank: the connection between it and one of them is "
             "broken",
             describe(r, world_.info().rank)));
}

void agreement::complete(caller& who) noexcept {
  world_.loop().engine().end_wait();
  world_.loop().engine().complete(who);
}

void agreement::refuse(caller& who, errc why, std::string text) noexcept {
  who.set_failure(why, std::move(text));
  complete(who);
}

// ---- giving up ----

void agreement::give_up(caller& who, errc why, const std::string& text) noexcept {
  if (round* const r = round_of(who)) leave_round(*r, why, text);
}

bool agreement::abandon(caller& who, const std::string& text) noexcept {
  round* const r = round_of(who);
  if (r == nullptr) return false;
  r->who = nullptr;
  r->abandoned = true;
  world_.loop().engine().end_wait();
  leave_round(*r, errc::cancelled, text);
  return true;
}

void agreement::decline(std::uint32_t id, const std::vector<int>& members, const std::string& text) noexcept {
  p2p::endpoint& e = world_.endpoint();
  e.renounce_context(2 * id);
  e.renounce_context(2 * id + 1);
  stay_out(2 * id);
  const p2p::failure_message told{errc::cancelled, text};
  for (const int m : members)
    if (m != world_.info().rank) e.control().send(2 * id, m, told);
}

void agreement::leave_round(round& r, errc why, const std::string& text) {
  if (!r.open() || r.leaving) return;
  r.leaving = true;
  r.why = why;
  r.text = text;
  r.gatherer = -1;  // the gatherer is to be told
  core::engine& engine = world_.loop().engine();
  engine.timers().arm(r.timer,
                      engine.platform().now() + (gathers(r) ? patience_of_gatherer : patience_with_gatherer));
  advance(r);
}

void agreement::expire(void* self) noexcept {
  auto& r = *static_cast<round*>(self);
  agreement& a = r.of;
  if (!r.leaving)
    return a.leave_round(r, errc::timed_out,
                         fmt::format("{} on {}", r.timeout_text, a.describe(r, a.world_.info().rank)));
  if (r.gatherer >= 0)
    r.text += fmt::format("; {}, which gathers the answers, does not say anything: {}",
                          a.describe(r, r.gatherer), why_silent);
  a.settle(r, bytes());
}

std::string agreement::describe(const round& r, int member) const {
  const communicator_state* const c = world_.find(r.name.first);
  const int rank = c != nullptr ? c->rank_of(member) : -1;
  return rank >= 0 ? c->describe(rank) : world_.describe(member);
}

// Names the members that kept a round open, as far as this rank can know.
std::string agreement::missing(const round& r) const {
  if (!gathers(r)) return {};
  std::string names;
  std::size_t n = 0;
  for (const int m : members_of(r)) {
    const bool here = m == world_.info().rank;
    if (here ? r.called() : has_gone(r, m) || r.joined.contains(m) || r.asked.contains(m)) continue;
    if (n++ < most_named) names += (names.empty() ? "" : ", ") + describe(r, m);
  }
  if (n == 0) return {};
  if (n > most_named) names += fmt::format(" and {} more", n - most_named);
  return fmt::format("shrink was not called by {}", names);
}

void agreement::mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept {
  for (const auto& [name, r] : rounds_) {
    if (!r->open() || !r->called()) continue;
    const bool from_all = gathers(*r);
    for (const int m : r->members) {
      if (m == world_.info().rank || has_gone(*r, m)) continue;
      if (from_all && (r->joined.contains(m) || r->asked.contains(m))) continue;
      by_peer[static_cast<std::size_t>(m)] = p2p::waits::for_it;
      if (!from_all) break;  // the gatherer
    }
  }
}

// ---- frames from other members ----

void agreement::received(int peer, std::uint32_t context, std::uint32_t number,
                         std::span<const std::byte> payload) noexcept {
  if (payload.empty()) return;
  const auto what = static_cast<word>(payload[0]);
  if (what == word::obituary) {
    const auto dead = payload.size() < 5 ? -1 : get<std::int32_t>(payload.data() + 1);
    if (dead >= 0 && dead < world_.info().size && dead != world_.info().rank)
      world_.endpoint().control().get_in_touch(dead);
    return;
  }
  if (!rounds_.contains(key{context, number}) && world_.find(context) == nullptr &&
      world_.endpoint().contexts().was_closed(context)) {
    round nobody(*this, key{context, number});
    if (what == word::join || what == word::invite || what == word::give_up) send(nobody, peer, word::absent);
    return;
  }
  round& r = at(context, number);
  const auto answer = [&] {
    world_.endpoint().control().send(context, peer, p2p::agreement_message{number, r.outcome});
  };
  switch (what) {
    case word::join:
    case word::invite:
      if (!r.open()) return answer();
      if (what == word::join) {
        r.joined[peer] = bytes(payload.begin() + 1, payload.end());
      } else {
        r.asked.insert(peer);
      }
      return advance(r);
    case word::settled:
      if (r.members.empty() || payload.size() != settled_bits_at + 2 * bits_bytes(r.members.size())) return;
      if (r.open()) return settle(r, bytes(payload.begin(), payload.end()));
      // This rank had stopped waiting for it.
      if (static_cast<word>(r.outcome[0]) == word::settled) return;
      r.outcome.assign(payload.begin(), payload.end());
      r.abandoned = true;
      return tell_caller(r);
    case word::refused:
      if (payload.size() < reason_text_at) return;
      return settle(r, bytes(payload.begin(), payload.end()));
    case word::give_up:
      if (payload.size() < reason_text_at) return;
      if (!r.open()) return answer();
      if (!gathers(r)) {
        const bytes same(payload.begin() + 1, payload.end());
        return send(r, peer, word::refused, same);
      }
      r.asked.insert(peer);
      if (r.called()) return leave_round(r, reason_in(payload), text_in(payload));
      r.why = reason_in(payload);
      r.text = text_in(payload);
      return settle(r, bytes());
    case word::absent:
      r.absent.insert(peer);
      return advance(r);
    case word::obituary:
      return;
  }
}

void agreement::peer_closed(int peer) noexcept {
  for (const auto& [k, r] : rounds_) {
    r->joined.erase(peer);
    r->asked.erase(peer);
    advance(*r);
  }
  if (world_.endpoint().peers().failed(peer)) spread(peer);
}

// Ranks without a connection to the dead one would not hear of its death. They check for themselves.
void agreement::spread(int dead) {
  bytes word_and_rank{static_cast<std::byte>(word::obituary)};
  put(word_and_rank, static_cast<std::int32_t>(dead));
  p2p::endpoint& e = world_.endpoint();
  for (int peer = 0; peer < world_.info().size; ++peer)
    if (peer != world_.info().rank && e.peers().in_touch(peer) && !e.peers().gone(peer))
      e.control().send(0, peer, p2p::agreement_message{0, word_and_rank});
}

void agreement::stay_out(std::uint32_t context) noexcept {
  for (auto at_round = rounds_.begin(); at_round != rounds_.end();) {
    round& r = *at_round->second;
    if (r.name.first != context || !r.open() || r.called()) {
      ++at_round;
      continue;
    }
    for (const auto& [peer, gone] : r.joined) send(r, peer, word::absent);
    for (const int peer : r.asked) send(r, peer, word::absent);
    at_round = rounds_.erase(at_round);
  }
}

void agreement::end() noexcept {
  for (const auto& [k, r] : rounds_)
    if (caller* const who = std::exchange(r->who, nullptr))
      refuse(*who, errc::shut_down, "the runtime has ended");
  rounds_.clear();
  settled_order_.clear();
}

}  // namespace tutti::comm
