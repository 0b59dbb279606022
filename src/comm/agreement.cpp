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

// Many times what the first live member needs to answer, if the loops on the way turn.
constexpr auto patience_with_answer = std::chrono::milliseconds(200);
// How long it waits for others to say whether the round has been settled, before it gives up for all.
constexpr auto patience_of_first = std::chrono::milliseconds(100);

// When two members have lost each other, usually one of them has died. The report of its end is then on its
// way to the first one.
constexpr auto patience_with_doubts = std::chrono::milliseconds(500);

// Finished rounds that are kept: latecomers are told how they ended.
constexpr std::size_t rounds_remembered = 1024;

// Rounds of which one peer has spoken and which this rank has not called.
constexpr std::ptrdiff_t most_rounds_ahead = 1024;

// What the joins of one peer take, in all rounds that are open.
constexpr std::size_t most_bytes_of_joins = std::size_t{32} << 20;

constexpr std::size_t most_text = 4000;

// Members of a communicator, by their ranks in it, ascending.
using member_list = std::vector<std::int32_t>;
bool contains(const member_list& members, std::int32_t rank) noexcept {
  return std::ranges::binary_search(members, rank);
}

// Whether a peer may have made this list, for a communicator of `size` ranks.
bool is_list(const member_list& members, int size) noexcept {
  return std::ranges::adjacent_find(members, std::ranges::greater_equal()) == members.end() &&
         (members.empty() || (members.front() >= 0 && members.back() < size));
}

// The end of the subtree of a place, which begins with the place itself. The parent of a place is the place without its
// lowest bit.
int end_below(int place, int places) noexcept {
  return place == 0 ? places : std::min(places, place + (place & -place));
}

// What members tell each other. They wait for the receiver's word after a join, an invite and a give_up.
namespace messages {

struct joined {  // these members, from the first to the last
  std::int32_t first, last;
  member_list lost;  // the members that none of them can reach any more
};
struct settled {
  std::int32_t by;  // the first member, by whose word the sender has it; rank of the world
  std::uint32_t id;
  member_list left_out;  // all others go on
  member_list failed;    // of these
};
struct join {
  std::int32_t first;           // the member that these join; rank of the world
  bool whole;                   // no others will come by the sender, as far as it knows
  std::vector<joined> members;  // ascending
  member_list absent;           // alive, but take no part; ranks of the world
  std::vector<settled>
      heard;  // what one of them had settled with another first member before it died; at most one
};
struct astray {  // the sender cannot reach the member that the receiver joins
  std::int32_t first;
};
struct invite {};  // the sender is above the receiver
struct refused {   // the round has ended without an outcome
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
  bool with_its_host;
};

}  // namespace messages

using message = std::variant<messages::join, messages::invite, messages::settled, messages::refused,
                             messages::give_up, messages::absent, messages::astray, messages::failure_notice>;
std::string bytes_of(const message& m) { return base::to_bytes(m); }

// Whether a peer may have said this, in a world or a communicator of `size` ranks.
bool is_settled(const messages::settled& m, int size) noexcept {
  return is_list(m.left_out, size) && is_list(m.failed, size) && m.id < 1U << communicator_id_bits;
}
bool is_join(const messages::join& m, int size) noexcept {
  int before = -1;
  for (const messages::joined& some : m.members) {
    if (some.first <= before || some.last < some.first || some.last >= size || !is_list(some.lost, size))
      return false;
    before = some.last;
  }
  return m.first >= 0 && m.first < size && is_list(m.absent, size) && m.heard.size() <= 1;
}

std::size_t bytes_in(const messages::join& m) noexcept {
  std::size_t bytes = m.members.size() * sizeof(messages::joined) + m.absent.size() * sizeof(std::int32_t);
  for (const messages::joined& some : m.members) bytes += some.lost.size() * sizeof(std::int32_t);
  return bytes;
}

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
  std::set<int> asking;        // those that wait for this rank's word
  std::set<int> answered;      // of those, once the round is over
  std::set<int> asked;         // those whose word this rank waits for, or waited
  // What each member that has joined this rank has told last; `first` is -1 if it comes to that by others.
  std::map<int, messages::join> joined;
  std::set<int> absent;                         // alive, but take no part
  int first = -1;                               // the first member that has not gone
  bool directly = false;                        // this rank joins it without others between
  int above = -1;                               // the one that this rank joins; -1: it is the first
  bool has_news = false;                        // which has not been told of all that have joined
  int awaited = 0;                              // the members before this place have joined, or gone
  errc why = errc::success;                     // otherwise it stops waiting, for this reason
  bool told_above = false, told_below = false;  // of that
  std::string text;
  std::optional<message> outcome;  // settled or refused
  core::timer timer;
  core::timer doubts;
  bool doubts_over = false;

  int size() const noexcept { return static_cast<int>(members.size()); }
  int member(int rank) const noexcept { return members[static_cast<std::size_t>(rank)]; }
  // What the member of this place has lost; null if it has not joined, as far as this rank knows.
  const member_list* lost_by(int place) const noexcept {
    for (const auto& [peer, told] : joined) {
      const auto next = std::ranges::upper_bound(told.members, place, {}, &messages::joined::first);
      if (told.first == first && next != told.members.begin() && std::prev(next)->last >= place)
        return &std::prev(next)->lost;
    }
    return nullptr;
  }
  void accept(int peer, messages::settled found);
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
void agreement::ask(round& r, int peer, const std::string& bytes) noexcept {
  r.asked.insert(peer);
  if (r.called()) home_.endpoint().control().send(r.name.first, peer, r.cause);
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

// This rank's place among them.
int agreement::place_in(std::span<const int> members) const noexcept {
  return static_cast<int>(std::ranges::find(members, home_.info().rank) - members.begin());
}

// The first member that has not gone; -1 if the communicator is not known here.
int agreement::first_of(const round& r) const noexcept {
  const std::span<const int> members = members_of(r);
  const auto first =
      std::ranges::find_if(members, [&](int m) { return m == home_.info().rank || !has_gone(r, m); });
  return first != members.end() ? *first : -1;
}

// The member that this rank joins; -1: it is the first itself.
int agreement::above(const round& r) const noexcept {
  if (r.first == home_.info().rank) return -1;
  const std::span<const int> members = members_of(r);
  for (int at = r.directly ? 0 : place_in(members); at != 0;) {
    at &= at - 1;
    const int m = members[static_cast<std::size_t>(at)];
    if (!has_gone(r, m)) return m;
  }
  return r.first;
}

// The members that are to join this rank.
std::vector<int> agreement::below(const round& r) const {
  const std::span<const int> members = members_of(r);
  const auto size = static_cast<int>(members.size());
  const int here = place_in(members);
  std::vector<int> found, places{here};
  if (here != 0 && r.above < 0)
    places.push_back(0);  // it has gone, and so have all between it and those found
  while (!places.empty()) {
    const int place = places.back();
    places.pop_back();
    for (int bit = 1; place + bit < end_below(place, size); bit *= 2) {
      const int m = members[static_cast<std::size_t>(place + bit)];
      if (place + bit != here && has_gone(r, m)) {
        places.push_back(place + bit);
      } else if (place + bit != here) {
        found.push_back(m);
      }
    }
  }
  return found;
}

// ---- taking part ----

void agreement::join(communicator_state& c, caller& who, bool has_deadline) {
  round& r = at(c.numbers().messages(), c.failure().next_round());
  r.members = c.group().members();
  r.has_news = true;
  r.timeout_text = c.pending().timeout_text();
  r.cause = c.failure().to_tell(p2p::extent::children);
  r.who = &who;
  core::progress_engine& engine = home_.loop().engine();
  engine.begin_wait();
  if (!r.open()) return tell_caller(r);
  if (!has_deadline && !r.leaving())
    engine.timers().arm(r.timer, engine.platform().now() + c.pending().timeout());
  advance(r);
}

// Called when a member has gone or joined.
void agreement::advance(round& r) {
  if (!r.open()) return;
  turn_back_those_astray(r);
  if (!r.called() && !r.leaving()) return;
  if (const int now = first_of(r); now != r.first) {
    r.first = now;
    r.directly = false;
    r.above = -1;
    r.awaited = 0;
  }
  if (const int now = above(r); now != r.above) {
    r.above = now;
    r.has_news = true;
    r.told_above = false;
  }
  const std::vector<int> below_it = below(r);
  const bool all = all_have_joined(r, below_it);
  const bool says_why = r.leaving() && !all && !std::exchange(r.told_below, true);
  for (const int m : below_it) {
    if (says_why)
      ask(r, m, bytes_of(reason<messages::give_up>(r.why, r.text)));
    else if (!r.asked.contains(m) && !r.asking.contains(m))
      ask(r, m, bytes_of(messages::invite{}));
  }
  const auto heard = std::ranges::find_if(r.joined, [](const auto& of) { return !of.second.heard.empty(); });
  if (r.above >= 0) {
    if (all || r.leaving() || heard != r.joined.end()) report(r, all);
  } else if (heard != r.joined.end()) {
    r.accept(heard->first, heard->second.heard.front());
  } else if (all) {
    gather(r);
  }
}

// Whether all have joined that this rank waits for. Who has joined has not heard of an outcome. The first member waits for
// all that have not gone; others for those below them, whose joins say that no more will come. A member that has joined
// a later one cannot reach the first, which will notice that too.
bool agreement::all_have_joined(round& r, const std::vector<int>& below_it) {
  const std::span<const int> members = members_of(r);
  const int here = place_in(members);
  const auto size = static_cast<int>(members.size());
  bool all = r.called();
  if (r.above < 0) {
    const auto has_joined_or_gone = [&](int rank) {
      return rank == here || has_gone(r, members[static_cast<std::size_t>(rank)]) ||
             r.lost_by(rank) != nullptr;
    };
    while (r.awaited < size && has_joined_or_gone(r.awaited)) ++r.awaited;
    all = all && r.awaited == size;
  } else {
    for (const int m : below_it) {
      const auto told = r.joined.find(m);
      all = all && told != r.joined.end() && (told->second.whole || told->second.first != r.first);
    }
  }
  if (all) return true;
  // Makes sure that the ends that others have noticed are noticed here, too.
  for (const auto& [peer, told] : r.joined)
    for (const messages::joined& some : told.members)
      for (const int rank : some.lost)
        if (rank != here && rank < size && !has_gone(r, members[static_cast<std::size_t>(rank)]))
          home_.endpoint().control().get_in_touch(members[static_cast<std::size_t>(rank)]);
  return false;
}

// Tells the member above who has joined, and why this rank gives up.
void agreement::report(round& r, bool whole) {
  if (std::exchange(r.has_news, false)) {
    const std::span<const int> members = members_of(r);
    const auto size = static_cast<int>(members.size());
    messages::join m{r.first, whole, {}, {r.absent.begin(), r.absent.end()}, {}};
    for (const auto& [peer, told] : r.joined)
      if (!told.heard.empty()) m.heard = told.heard;
    member_list lost;
    for (int rank = 0; rank < size; ++rank)
      if (has_gone(r, members[static_cast<std::size_t>(rank)])) lost.push_back(rank);
    for (int rank = 0; rank < size; ++rank) {
      const bool here = members[static_cast<std::size_t>(rank)] == home_.info().rank;
      const member_list* const of = here && r.called() ? &lost : r.lost_by(rank);
      if (of == nullptr) continue;
      if (!m.members.empty() && m.members.back().last == rank - 1 && m.members.back().lost == *of) {
        m.members.back().last = rank;
      } else {
        m.members.push_back({rank, rank, *of});
      }
    }
    const std::string bytes = bytes_of(m);
    ask(r, r.above, bytes);
    // Others that take this rank for one below them: they know of the ends of those between, or have lost them.
    for (const int peer : r.asking)
      if (peer != r.above && !r.joined.contains(peer)) ask(r, peer, bytes);
  }
  if (r.leaving() && !std::exchange(r.told_above, true))
    ask(r, r.above, bytes_of(reason<messages::give_up>(r.why, r.text)));
}

// All have joined this rank, the first.
void agreement::gather(round& r) {
  if (r.leaving()) return settle(r);
  const int self = home_.info().rank;
  member_list in;
  for (int rank = 0; rank < r.size(); ++rank)
    if (r.member(rank) == self || !has_gone(r, r.member(rank))) in.push_back(rank);
  // If two members have lost each other, one is left out: the one that has lost more, of equals the last.
  std::set<std::pair<int, int>> broken;
  for (const int a : in) {
    const member_list* const lost = r.lost_by(a);
    if (lost == nullptr) continue;
    for (const int b : *lost)
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
  messages::settled found{.by = self, .id = 0, .left_out = {}, .failed = {}};
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
  r.joined.clear();
  answer_all(r, bytes_of(*r.outcome));
  settled_order_.push_back(r.name);
  tell_caller(r);
}

// Tells this to the members that wait for this rank's word.
void agreement::answer_all(round& r, const std::string& bytes) noexcept {
  for (const int peer : r.asking) send(r.name, peer, bytes);
  r.answered = std::exchange(r.asking, {});
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
  core::progress_engine& engine = home_.loop().engine();
  engine.timers().arm(r.timer,
                      engine.platform().now() +
                          (first_of(r) == home_.info().rank ? patience_of_first : patience_with_answer));
  advance(r);
}

void agreement::expire(void* self) noexcept {
  auto& r = *static_cast<round*>(self);
  agreement& a = r.of;
  if (!r.leaving())
    return a.leave_round(r, errc::timed_out,
                         fmt::format("{} on {}", r.timeout_text, a.describe(r, a.home_.info().rank)));
  if (r.above >= 0)
    r.text += fmt::format("; {}, which gathers the answers, does not say anything: {}",
                          a.describe(r, r.above), why_silent);
  a.settle(r);
}

std::string agreement::describe(const round& r, int member) const {
  const communicator_state* const c = find(r.name.first);
  const int rank = c != nullptr ? c->group().rank_of(member) : -1;
  return rank >= 0 ? c->group().describe(rank) : home_.info().describe(member);
}

// Names the members that kept a round open, as far as this rank can know.
std::string agreement::missing(const round& r) const {
  if (first_of(r) != home_.info().rank) return {};
  std::vector<std::string> names;
  for (int rank = 0; const int m : members_of(r)) {
    const bool joined = r.lost_by(rank++) != nullptr;
    if (m == home_.info().rank ? r.called() : has_gone(r, m) || joined) continue;
    names.push_back(describe(r, m));
  }
  return names.empty() ? "" : "shrink was not called by " + list_of(names);
}

void agreement::mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept {
  for (const auto& [name, r] : rounds_) {
    if (!r->open() || !r->called()) continue;
    // All that have not joined yet and are to come by this rank: if their host has gone, that is noticed at once.
    const int here = place_in(r->members), size = r->size();
    const int end = r->above < 0 ? size : end_below(here, size);
    for (int rank = r->above < 0 ? 0 : here + 1; rank < end; ++rank)
      if (rank != here && !has_gone(*r, r->member(rank)) && r->lost_by(rank) == nullptr)
        by_peer[static_cast<std::size_t>(r->member(rank))] = p2p::waits::for_it;
    if (r->above >= 0) by_peer[static_cast<std::size_t>(r->above)] = p2p::waits::for_it;
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
    if (m->dead < 0 || m->dead >= home_.info().size || m->dead == self) return nullptr;
    if (m->with_its_host) home_.note_silent_host(m->dead);
    home_.endpoint().control().get_in_touch(m->dead);
    return nullptr;
  }
  auto* const joins = std::get_if<messages::join>(&said);
  const auto* const gives_up = std::get_if<messages::give_up>(&said);
  const bool asks = joins != nullptr || gives_up != nullptr || std::holds_alternative<messages::invite>(said);
  auto* const found = std::get_if<messages::settled>(&said);
  if (joins != nullptr && !is_join(*joins, home_.info().size))
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
  } else if (!asks && (known == rounds_.end() || !known->second->asked.contains(peer))) {
    return nullptr;  // an answer to a question that this rank has not asked
  }
  round& r = at(name.first, name.second);
  if (asks && !r.open()) {
    send(name, peer, bytes_of(*r.outcome));
    return nullptr;
  }
  const auto* const no = std::get_if<messages::refused>(&said);
  const auto size = static_cast<int>(members_of(r).size());
  if (size == 0) {  // the communicator is not known here yet: nothing can be settled there, nor passed on
    if (found != nullptr) return nullptr;
    if (joins != nullptr) joins->heard.clear();
    if (gives_up != nullptr) {
      send(name, peer, bytes_of(messages::refused{gives_up->why, gives_up->text.substr(0, most_text)}));
      return nullptr;
    }
  }
  if ((found != nullptr && !is_settled(*found, size)) ||
      (joins != nullptr && !joins->heard.empty() && !is_settled(joins->heard.front(), size)))
    return "an agreement of ranks that there are not";
  if (asks) r.asking.insert(peer);
  // It takes this rank for one below it, whose join it waits for.
  if (std::holds_alternative<messages::invite>(said) && peer != r.above) r.has_news = true;
  if (joins != nullptr) {
    std::size_t held = bytes_in(*joins);
    for (const auto& [of, other] : rounds_)
      if (const auto told = other->joined.find(peer); other.get() != &r && told != other->joined.end())
        held += bytes_in(told->second);
    if (held > most_bytes_of_joins) return "agreements that would take too much memory";
    // Who joins a later member knows that the first has gone.
    if (r.first >= 0 && r.first != joins->first && r.first != self)
      home_.endpoint().control().get_in_touch(r.first);
    for (const int m : joins->absent)
      if (m != self) r.absent.insert(m);
    r.joined[peer] = std::move(*joins);
    r.has_news = true;
  } else if (std::holds_alternative<messages::absent>(said)) {
    r.absent.insert(peer);
    r.has_news = true;
  }
  const auto* const strays = std::get_if<messages::astray>(&said);
  if (strays != nullptr && peer == r.above && strays->first == r.first) r.directly = true;
  // One below that gives up, or has given up, does so for all.
  if (gives_up != nullptr) leave_round(r, p2p::reason_of(gives_up->why), gives_up->text.substr(0, most_text));
  if (no != nullptr && r.open() && peer != r.above)
    leave_round(r, p2p::reason_of(no->why), no->text.substr(0, most_text));
  if (found != nullptr) {
    r.accept(peer, std::move(*found));
  } else if (no == nullptr || peer != r.above) {
    advance(r);
  } else if (r.open()) {
    r.outcome = std::move(said);
    r.asking.erase(peer);
    settle(r);
  }
  return nullptr;
}

// `peer` knows the outcome.
void agreement::round::accept(int peer, messages::settled found) {
  const int self = of.home_.info().rank;
  if (open() && first != self && peer != first && found.by != first) {
    // Not by the word of the member that this rank joins, which is to know it first.
    if (peer == above) {
      directly = true;
    } else {
      const auto [at, is_new] = joined.try_emplace(peer);
      if (is_new) at->second.first = -1;
      at->second.heard = {std::move(found)};
      has_news = true;
    }
    return of.advance(*this);
  }
  const std::span<const int> all = of.members_of(*this);
  const bool here = std::ranges::none_of(
      found.left_out, [&](int rank) { return all[static_cast<std::size_t>(rank)] == self; });
  // The sender may have it from another member.
  if (here && !of.home_.is_free(found.id)) {
    if (!open()) return;
    why = errc::protocol;
    text = fmt::format("{} says that the members agreed on the number {}, which this rank has used already",
                       of.describe(*this, peer), found.id);
    return of.settle(*this);
  }
  if (open()) {
    found.by = first;
    outcome = std::move(found);
    asking.erase(peer);
    of.settle(*this);
  } else if (std::holds_alternative<messages::refused>(*outcome)) {
    // This rank had stopped waiting for it, and with it those below.
    outcome = std::move(found);
    for (const int other : answered)
      if (other != peer) of.send(name, other, bytes_of(*outcome));
    abandoned = true;
    of.tell_caller(*this);
  }
}

// Those whose joins this rank cannot bring to the member that they are for come to it by others. Nobody waits for them
// here, and what they have heard is kept.
void agreement::turn_back_those_astray(round& r) noexcept {
  for (auto& [peer, told] : r.joined) {
    if (told.first < 0 || !has_gone(r, told.first)) continue;
    send(r.name, peer, bytes_of(messages::astray{told.first}));
    told.first = -1;
    told.members.clear();
  }
}

void agreement::peer_closed(int peer) noexcept {
  for (const auto& [k, r] : rounds_) {
    r->asking.erase(peer);
    advance(*r);
  }
  const p2p::peers& all = home_.endpoint().peers();
  if (!all.failed(peer)) return;
  // Ranks without a connection to the dead one would not hear of its death. They check for themselves.
  const std::string text = bytes_of(messages::failure_notice{peer, home_.is_on_silent_host(peer)});
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
