// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.hpp"

#include "base/fields.hpp"
#include "comm/communicator_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <new>
#include <optional>
#include <set>
#include <variant>

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

// Rounds of which one peer has spoken and which this rank has not called.
constexpr std::ptrdiff_t most_rounds_ahead = 1024;

constexpr std::size_t most_text = 4000;

// Members of a communicator, by their ranks in it, ascending.
using member_list = std::vector<std::int32_t>;
bool contains(const member_list& members, std::int32_t rank) noexcept {
  return std::ranges::binary_search(members, rank);
}

// Whether a peer may have made this list, for a communicator of `size` ranks.
bool is_list(const member_list& members, std::size_t size) noexcept {
  return std::ranges::adjacent_find(members, std::ranges::greater_equal()) == members.end() &&
         (members.empty() || (members.front() >= 0 && static_cast<std::size_t>(members.back()) < size));
}

// What members tell each other. They wait for the receiver's word after a join, an invite and a give_up.
namespace messages {

struct join {
  member_list lost;  // the members that the sender cannot reach any more
};
struct invite {};  // the sender gathers
struct settled {
  std::uint32_t id;
  member_list left_out;  // all others go on
  member_list failed;    // of these
};
struct refused {  // the round has ended without an outcome
  std::uint16_t why;
  std::string text;
};
struct give_up {
  std::uint16_t why;
  std::string text;
};
struct absent {};  // the sender takes no part
struct failure_notice {
  std::int32_t dead;  // rank of the world
};

}  // namespace messages

using message = std::variant<messages::join, messages::invite, messages::settled, messages::refused,
                             messages::give_up, messages::absent, messages::failure_notice>;
std::string bytes_of(const message& m) { return base::to_bytes(m); }

template <class Reason>
Reason reason(errc why, const std::string& text) {
  return {static_cast<std::uint16_t>(why), text.substr(0, most_text)};
}

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
  int begun_by = -1;      // the peer that spoke of it before this rank
  caller* who = nullptr;  // null: not called here yet, over, or abandoned
  bool abandoned = false;
  std::vector<int> members;  // ranks of the world; for a round that was called here
  std::string timeout_text;
  p2p::failure_message cause;  // why the communicator has failed, for members that have not heard of it
  // The members that wait for this rank's word. Those that have joined it: with the members that they have lost.
  std::map<int, std::optional<member_list>> asking;
  std::set<int> absent;      // alive, but take no part
  int gatherer = -1;         // the one that this rank has joined
  bool invited = false;      // this rank gathers and has said so
  int awaited = 0;           // the members before this place have joined it, or gone
  errc why = errc::success;  // otherwise it stops waiting, for this reason
  std::string text;
  std::optional<message> outcome;  // settled or refused
  core::timer timer;
  core::timer doubts;
  bool doubts_over = false;

  int size() const noexcept { return static_cast<int>(members.size()); }
  int member(int rank) const noexcept { return members[static_cast<std::size_t>(rank)]; }
  bool open() const noexcept { return !outcome; }
  bool leaving() const noexcept { return why != errc::success; }
  bool called() const noexcept { return who != nullptr || abandoned; }
};

agreement::agreement(communicator_home& home) noexcept : home_(home) {}
agreement::~agreement() = default;

communicator_state* agreement::find(std::uint32_t message_context) const noexcept {
  return message_context % 2 == 0 ? home_.communicators().find(message_context / 2) : nullptr;
}

agreement::round& agreement::at(std::uint32_t context, std::uint32_t number) {
  const key k{context, number};
  const auto found = rounds_.find(k);
  if (found != rounds_.end()) return *found->second;
  if (settled_order_.size() >= rounds_remembered) {
    rounds_.erase(settled_order_.front());
    settled_order_.pop_front();
  }
  return *rounds_.emplace(k, std::make_unique<round>(*this, k)).first->second;
}

// Whether this rank has called the round, of which `peer` is a member.
bool agreement::may_answer(const round& r, int peer) noexcept {
  return std::ranges::find(r.members, peer) != r.members.end();
}

agreement::round* agreement::round_of(const caller& who) noexcept {
  for (const auto& [k, r] : rounds_)
    if (r->who == &who) return r.get();
  return nullptr;
}

void agreement::send(key to, int peer, const std::string& bytes) noexcept {
  const p2p::agreement_message m{to.second, std::as_bytes(std::span(bytes))};
  home_.endpoint().control().send(to.first, peer, m);
}

// A member that is to take part first hears why the communicator has failed.
void agreement::ask(const round& r, int peer, const std::string& bytes) noexcept {
  home_.endpoint().control().send(r.name.first, peer, r.cause);
  send(r.name, peer, bytes);
}

bool agreement::has_gone(const round& r, int member) const noexcept {
  return home_.endpoint().peers().gone(member) || r.absent.contains(member);
}

// Ranks of the world; none while the communicator is not known here.
std::span<const int> agreement::members_of(const round& r) const noexcept {
  const communicator_state* const c = r.members.empty() ? find(r.name.first) : nullptr;
  return c != nullptr ? c->group().members() : r.members;
}

// Whether this rank is the first of those that have not gone.
bool agreement::gathers(const round& r) const noexcept {
  for (const int m : members_of(r)) {
    if (m == home_.info().rank) return true;
    if (!has_gone(r, m)) return false;
  }
  return false;
}

// ---- taking part ----

void agreement::join(communicator_state& c, caller& who, bool has_deadline) {
  round& r = at(c.numbers().messages(), c.failure().next_round());
  r.members = c.group().members();
  r.timeout_text = c.pending().timeout_text();
  r.cause = c.failure().to_tell(p2p::extent::children);
  r.who = &who;
  core::progress_engine& engine = home_.loop().engine();
  engine.begin_wait();
  if (!r.open()) return tell_caller(r);
  if (!has_deadline) engine.timers().arm(r.timer, engine.platform().now() + c.pending().timeout());
  advance(r);
}

// Called when a member has gone or joined.
void agreement::advance(round& r) {
  if (!r.open() || !r.called()) return;
  for (const int m : r.members) {
    if (m == home_.info().rank) {
      // An earlier gatherer may have settled the round and told others before it went: ask them.
      if (r.leaving() && m == r.members.front()) return settle(r);
      return gather(r);
    }
    if (has_gone(r, m)) continue;
    if (r.gatherer == m) return;
    r.gatherer = m;
    if (r.leaving()) return send(r.name, m, bytes_of(reason<messages::give_up>(r.why, r.text)));
    messages::join joins;
    for (int rank = 0; rank < r.size(); ++rank)
      if (has_gone(r, r.member(rank))) joins.lost.push_back(rank);
    return ask(r, m, bytes_of(joins));
  }
}

void agreement::gather(round& r) {
  const int self = home_.info().rank;
  if (!std::exchange(r.invited, true)) {
    for (const int m : r.members)
      if (m != self && !has_gone(r, m)) ask(r, m, bytes_of(messages::invite{}));
  }
  for (; r.awaited < r.size(); ++r.awaited) {
    const int m = r.member(r.awaited);
    if (m == self || has_gone(r, m)) continue;
    // Who asks, or gives up, knows of no outcome either.
    const auto asks = r.asking.find(m);
    if (asks == r.asking.end() || (!r.leaving() && !asks->second)) return;
  }
  if (r.leaving()) return settle(r);
  member_list in;
  for (int rank = 0; rank < r.size(); ++rank)
    if (r.member(rank) == self || !has_gone(r, r.member(rank))) in.push_back(rank);
  // If two members have lost each other, one is left out: the one that has lost more, of equals the last.
  std::set<std::pair<int, int>> broken;
  for (const int a : in) {
    const auto told = r.asking.find(r.member(a));
    if (told == r.asking.end() || !told->second) continue;
    for (const int b : *told->second)
      if (contains(in, b)) broken.insert(std::minmax(a, b));
  }
  member_list cut_off;
  while (!broken.empty()) {
    if (!r.doubts_over) {
      core::progress_engine& engine = home_.loop().engine();
      if (!r.doubts.armed()) engine.timers().arm(r.doubts, engine.platform().now() + patience_with_doubts);
      return;
    }
    std::map<int, int> lost;
    for (const auto& [a, b] : broken) ++lost[a], ++lost[b];
    const int worst = std::ranges::max_element(lost.rbegin(), lost.rend(), {}, [](const auto& of) {
                        return of.second;
                      })->first;
    cut_off.push_back(worst);
    std::erase(in, worst);
    std::erase_if(broken, [worst](const auto& pair) { return pair.first == worst || pair.second == worst; });
  }
  messages::settled found;
  try {
    found.id = home_.next_communicator_id();
  } catch (const error& e) {
    r.why = static_cast<errc>(e.code().value());
    r.text = e.what();
    return settle(r);
  }
  for (int rank = 0; rank < r.size(); ++rank) {
    if (contains(in, rank)) continue;
    found.left_out.push_back(rank);
    const int m = r.member(rank);
    const bool lost = m != self && std::ranges::find(cut_off, rank) != cut_off.end();
    if (lost || home_.endpoint().peers().failed(m)) found.failed.push_back(rank);
  }
  r.outcome = std::move(found);
  settle(r);
}

// Ends the round. Without an outcome it has failed for r.why.
void agreement::settle(round& r) {
  if (!r.outcome) {
    std::string text = r.text;
    if (const std::string who = missing(r); !who.empty()) text += "; " + who;
    r.outcome = reason<messages::refused>(r.why, text);
  }
  r.timer.cancel();
  r.doubts.cancel();
  answer_all(r, bytes_of(*r.outcome));
  settled_order_.push_back(r.name);
  tell_caller(r);
}

// Tells this to the members that wait for this rank's word.
void agreement::answer_all(round& r, const std::string& bytes) noexcept {
  for (const auto& [peer, lost] : std::exchange(r.asking, {})) send(r.name, peer, bytes);
}

void agreement::tell_caller(round& r) {
  if (!r.called()) return;
  r.timer.cancel();
  caller* const who = std::exchange(r.who, nullptr);
  if (const auto* const no = std::get_if<messages::refused>(&*r.outcome)) {
    if (who != nullptr) refuse(*who, p2p::reason_of(no->why), no->text);
    return;
  }
  const auto& found = std::get<messages::settled>(*r.outcome);
  std::vector<int> members, dead;
  for (int rank = 0; rank < r.size(); ++rank) {
    if (contains(found.failed, rank)) dead.push_back(r.member(rank));
    if (!contains(found.left_out, rank)) members.push_back(r.member(rank));
  }
  const bool here = std::ranges::find(members, home_.info().rank) != members.end();
  if (who == nullptr) {
    // The others count on this rank, which no longer takes part.
    r.abandoned = false;
    if (here) decline(found.id, members, r.text);
    return;
  }
  if (here) {
    who->id = found.id;
    who->members = std::move(members);
    who->failed = std::move(dead);
    return complete(*who);
  }
  if (communicator_state* const c = find(r.name.first)) c->failure().add_failed(dead);
  refuse(*who, errc::peer_failed,
         fmt::format(
             "the others go on without {}, which is this rank: the connection between it and one of them is "
             "broken",
             describe(r, home_.info().rank)));
}

void agreement::complete(caller& who) noexcept {
  home_.loop().engine().end_wait();
  home_.loop().engine().complete(who);
}

void agreement::refuse(caller& who, errc why, std::string text) noexcept {
  who.set_failure(why, std::move(text));
  complete(who);
}

// ---- giving up ----

void agreement::give_up(caller& who, errc why, const std::string& text) noexcept {
  if (round* const r = round_of(who)) leave_round(*r, why, text);
}

void agreement::abandon(caller& who, const std::string& text) noexcept {
  if (round* const r = round_of(who)) {
    r->who = nullptr;
    r->abandoned = true;
    home_.loop().engine().end_wait();
    leave_round(*r, errc::cancelled, text);
  } else if (who.failure() == errc::success) {
    decline(who.id, who.members, text);
  }
}

void agreement::decline(std::uint32_t id, const std::vector<int>& members, const std::string& text) noexcept {
  p2p::endpoint& e = home_.endpoint();
  e.renounce_context(2 * id);
  e.renounce_context(2 * id + 1);
  stay_out(2 * id);
  const p2p::failure_message told{errc::cancelled, text};
  for (const int m : members)
    if (m != home_.info().rank) e.control().send(2 * id, m, told);
}

void agreement::leave_round(round& r, errc why, const std::string& text) {
  if (!r.open() || r.leaving()) return;
  r.why = why;
  r.text = text;
  r.gatherer = -1;  // the gatherer is to be told
  core::progress_engine& engine = home_.loop().engine();
  engine.timers().arm(r.timer,
                      engine.platform().now() + (gathers(r) ? patience_of_gatherer : patience_with_gatherer));
  advance(r);
}

void agreement::expire(void* self) noexcept {
  auto& r = *static_cast<round*>(self);
  agreement& a = r.of;
  if (!r.leaving())
    return a.leave_round(r, errc::timed_out,
                         fmt::format("{} on {}", r.timeout_text, a.describe(r, a.home_.info().rank)));
  if (r.gatherer >= 0)
    r.text += fmt::format("; {}, which gathers the answers, does not say anything: {}",
                          a.describe(r, r.gatherer), why_silent);
  a.settle(r);
}

std::string agreement::describe(const round& r, int member) const {
  const communicator_state* const c = find(r.name.first);
  const int rank = c != nullptr ? c->group().rank_of(member) : -1;
  return rank >= 0 ? c->group().describe(rank) : home_.info().describe(member);
}

// Names the members that kept a round open, as far as this rank can know.
std::string agreement::missing(const round& r) const {
  if (!gathers(r)) return {};
  std::vector<std::string> names;
  for (const int m : members_of(r)) {
    const bool here = m == home_.info().rank;
    if (here ? r.called() : has_gone(r, m) || r.asking.contains(m)) continue;
    names.push_back(describe(r, m));
  }
  return names.empty() ? "" : "shrink was not called by " + list_of(names);
}

void agreement::mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept {
  for (const auto& [name, r] : rounds_) {
    if (!r->open() || !r->called()) continue;
    const bool from_all = gathers(*r);
    for (const int m : r->members) {
      if (m == home_.info().rank || has_gone(*r, m)) continue;
      if (from_all && r->asking.contains(m)) continue;
      by_peer[static_cast<std::size_t>(m)] = p2p::waits::for_it;
      if (!from_all) break;  // the gatherer
    }
  }
}

// ---- frames from other members ----

void agreement::received(int peer, std::uint32_t context, std::uint32_t number,
                         std::span<const std::byte> payload) noexcept {
  if (const char* const wrong = act_on(peer, {context, number}, payload))
    home_.endpoint().reject(peer, wrong);
}

// Returns what is wrong with the message, or nullptr.
const char* agreement::act_on(int peer, key name, std::span<const std::byte> payload) noexcept {
  message said;
  try {
    said = base::from_bytes<message>({reinterpret_cast<const char*>(payload.data()), payload.size()}, "");
  } catch (const error&) {
    return "an agreement that cannot be read";
  } catch (const std::bad_alloc&) {  // the peer decides how long it is
    home_.endpoint().lose(peer, "what it says of who is left");
    return nullptr;
  }
  const int self = home_.info().rank;
  if (const auto* const m = std::get_if<messages::failure_notice>(&said)) {
    if (m->dead >= 0 && m->dead < home_.info().size && m->dead != self)
      home_.endpoint().control().get_in_touch(m->dead);
    return nullptr;
  }
  auto* const joins = std::get_if<messages::join>(&said);
  const auto* const gives_up = std::get_if<messages::give_up>(&said);
  const bool asks = joins != nullptr || gives_up != nullptr || std::holds_alternative<messages::invite>(said);
  if (joins != nullptr && !is_list(joins->lost, static_cast<std::size_t>(home_.info().size)))
    return "an agreement of ranks that there are not";
  const auto known = rounds_.find(name);
  if (known == rounds_.end() && find(name.first) == nullptr &&
      home_.endpoint().contexts().was_closed(name.first)) {
    if (asks) send(name, peer, bytes_of(messages::absent{}));
    return nullptr;
  }
  if (known == rounds_.end() && asks) {
    const auto is_ahead = [peer](const auto& entry) {
      const round& r = *entry.second;
      return r.begun_by == peer && r.open() && !r.called();
    };
    if (std::ranges::count_if(rounds_, is_ahead) >= most_rounds_ahead)
      return "agreements of communicators that this rank does not have";
    at(name.first, name.second).begun_by = peer;
  } else if (!asks && (known == rounds_.end() || !may_answer(*known->second, peer))) {
    return nullptr;  // an answer to a question that this rank has not asked
  }
  round& r = at(name.first, name.second);
  if (asks && !r.open()) {
    send(name, peer, bytes_of(*r.outcome));
    return nullptr;
  }
  if (gives_up != nullptr) {
    if (!gathers(r)) {
      send(name, peer, bytes_of(messages::refused{gives_up->why, gives_up->text.substr(0, most_text)}));
      return nullptr;
    }
    r.asking.try_emplace(peer);
    const errc why = p2p::reason_of(gives_up->why);
    const std::string text = gives_up->text.substr(0, most_text);
    if (r.called()) {
      leave_round(r, why, text);
    } else {
      r.why = why;
      r.text = text;
      settle(r);
    }
    return nullptr;
  }
  if (asks || std::holds_alternative<messages::absent>(said)) {
    if (joins != nullptr)
      r.asking[peer] = std::move(joins->lost);
    else if (asks)
      r.asking.try_emplace(peer);
    else
      r.absent.insert(peer);
    advance(r);
    return nullptr;
  }
  if (const auto* const found = std::get_if<messages::settled>(&said)) {
    const std::size_t size = r.members.size();
    if (!is_list(found->left_out, size) || !is_list(found->failed, size))
      return "an agreement of ranks that there are not";
    const bool here = std::ranges::none_of(found->left_out, [&](int out) { return r.member(out) == self; });
    if (found->id >= 1U << communicator_id_bits) return "an agreement on a number that no rank gives out";
    // The sender may have it from another member.
    if (here && r.open() && !home_.is_free(found->id)) {
      r.why = errc::protocol;
      r.text =
          fmt::format("{} says that the members agreed on the number {}, which this rank has used already",
                      describe(r, peer), found->id);
      settle(r);
      return nullptr;
    }
    if (here && !home_.is_free(found->id)) return nullptr;
  }
  if (r.open()) {
    r.outcome = std::move(said);
    settle(r);
  } else if (std::holds_alternative<messages::settled>(said) &&
             std::holds_alternative<messages::refused>(*r.outcome)) {
    // This rank had stopped waiting for it.
    r.outcome = std::move(said);
    r.abandoned = true;
    tell_caller(r);
  }
  return nullptr;
}

void agreement::peer_closed(int peer) noexcept {
  for (const auto& [k, r] : rounds_) {
    r->asking.erase(peer);
    advance(*r);
  }
  const p2p::peers& all = home_.endpoint().peers();
  if (!all.failed(peer)) return;
  // Ranks without a connection to the dead one would not hear of its death. They check for themselves.
  const std::string text = bytes_of(messages::failure_notice{peer});
  for (int other = 0; other < home_.info().size; ++other)
    if (other != home_.info().rank && all.in_touch(other) && !all.gone(other)) send({0, 0}, other, text);
}

void agreement::stay_out(std::uint32_t context) noexcept {
  std::erase_if(rounds_, [&](const auto& entry) {
    round& r = *entry.second;
    if (r.name.first != context || !r.open() || r.called()) return false;
    answer_all(r, bytes_of(messages::absent{}));
    return true;
  });
}

void agreement::end() noexcept {
  for (const auto& [k, r] : rounds_)
    if (caller* const who = std::exchange(r->who, nullptr))
      refuse(*who, errc::shut_down, "the runtime has ended");
  rounds_.clear();
  settled_order_.clear();
}

}  // namespace tutti::comm
