// SPDX-License-Identifier: Apache-2.0
#include "comm/failure_spread.hpp"

#include <fmt/format.h>

#include <bit>
#include <chrono>

namespace tutti::comm {
namespace {

// After a member's death, how long a collective may wait for others that live. They know of the death as well, and
// say so if they lack something.
constexpr auto patience_with_others = std::chrono::milliseconds(100);

}  // namespace

failure_spread::failure_spread(owner& o, core::loop& loop, p2p::endpoint& endpoint, const group& members,
                               collective_order& order, pending_operations& pending)
    : owner_(o),
      loop_(loop),
      endpoint_(endpoint),
      members_(members),
      order_(order),
      pending_(pending),
      told_failed_(members.members().size()),
      doubts_timer_(&end_doubts, this) {}

void failure_spread::fail(errc why, const std::string& text, p2p::subject names, bool tell, p2p::extent reach,
                          std::optional<std::uint32_t> from) noexcept {
  if (shut_down_) return;
  // What this rank gives up after a failure or a member's death, it gives up because of that.
  if (tell && p2p::given_up(why)) {
    const bool dies = !failed() && doubts_timer_.armed();
    const p2p::departure cause = dies ? dead_member_ : p2p::departure{failure_.why, failure_.text};
    if ((dies || failed()) && cause.code != why)
      return fail(cause.code, cause.text, p2p::subject::other, tell, reach, from);
  }
  const std::uint32_t first = from ? *from : order_.first_open();
  if (!fails_earlier(first)) {
    // It failed for another reason; communicators made from it may still be working.
    if (reach != p2p::extent::one) fail_children(why, text, tell);
    return;
  }
  if (!failed()) {
    failure_ = {.why = why, .text = text, .names = names};
    owner_.has_failed();
  }
  failure_.first = first;
  const p2p::failure_message told{why, text, reach, failed_members(), first, names};
  // The dead rank is also in the communicator that this one was made from, which may hear of it later.
  if (why == errc::peer_failed)
    for (failure_spread* f = owner_.parent(); f != nullptr; f = f->owner_.parent()) {
      f->add_failed(told.failed);
      if (f->dead_member_.text.empty()) f->dead_member_ = {why, text};
    }
  if (tell)
    for (int r = 0; r < members_.size(); ++r)
      if (tells(r)) endpoint_.control().send(owner_.message_context(), members_.world_rank(r), told);
  // This rank caused it, or it ends pending operations: an operation of this rank reports it.
  if (tell) {
    end_collectives(why, text, names);
  } else {
    last_rounds_.begin(why, text, names);
  }
  reported_ = end_messages() || tell || reported_;
  if (reach != p2p::extent::one) fail_children(why, text, tell);
}

// Of few members all. Of many those that it is in touch with, and those a power of two away, who tell others in
// turn: were all to tell all, each rank would connect to each other one.
bool failure_spread::tells(int rank) const noexcept {
  const int here = members_.rank(), size = members_.size();
  if (rank == here) return false;
  if (size <= most_told_directly || endpoint_.peers().in_touch(members_.world_rank(rank))) return true;
  const auto away = static_cast<unsigned>(rank > here ? rank - here : rank - here + size);
  return std::has_single_bit(away) || std::has_single_bit(static_cast<unsigned>(size) - away);
}

void failure_spread::fail_children(errc why, const std::string& text, bool tell) noexcept {
  const std::vector<int> known = failed_members();
  owner_.for_each_child([&](failure_spread& c) {
    c.add_failed(known);
    std::string text_there = text;
    if (why == errc::peer_failed)
      for (const int member : known) text_there += c.members_.number_here(member);
    // What another rank has completed there is not known.
    c.fail(why, text_there, p2p::subject::other, tell, p2p::extent::children,
           tell ? c.order_.first_open() : 0);
  });
}

std::string failure_spread::text_for(const running_collective& c, const std::string& text,
                                     p2p::subject names) const {
  return names == p2p::subject::collective ? text
                                           : fmt::format("{} on {}: {}", c.describe(), members_.name(), text);
}

void failure_spread::end_collectives(errc why, const std::string& text, p2p::subject names) noexcept {
  order_.running().for_each([&](running_collective& c) {
    if (!ends(c.sequence)) return;
    c.end(why, text_for(c, text, names));
    reported_ = true;
  });
}

bool failure_spread::end_messages() noexcept {
  return pending_.end_unless([this](const core::completion& a) {
    const running_collective* c = order_.running().front();
    while (c != nullptr && c != &a) c = order_.running().after(*c);
    return c != nullptr;
  });
}

void failure_spread::last_rounds::begin(errc why, const std::string& text, p2p::subject names) noexcept {
  stop();
  if (of_.order_.running().empty()) return;
  left_ = 2;  // this round has begun
  failure_ = {.why = why, .text = text, .names = names};
  of_.engine().add(*this);
  of_.loop_.wake();
}

void failure_spread::last_rounds::stop() noexcept {
  if (std::exchange(left_, 0) > 0) of_.engine().remove(*this);
}

bool failure_spread::last_rounds::poll() noexcept {
  if (--left_ > 0) return true;
  of_.engine().remove(*this);
  of_.end_collectives(failure_.why, failure_.text, failure_.names);
  return true;
}

void failure_spread::told(int peer, const p2p::failure_message& what) noexcept {
  if (shut_down_) return;
  add_failed(what.failed);
  // Passed on before anything is taken back. A rank that is communicating with this one then hears the reason
  // first, not that a message was cancelled or that this rank has left.
  const bool is_news = fails_earlier(what.first);
  if (is_news)
    for (int r = 0; r < members_.size(); ++r) {
      const int member = members_.world_rank(r);
      const bool near = r != members_.rank() && endpoint_.peers().in_touch(member);
      if (member != peer && (near || (members_.size() > most_told_directly && tells(r))))
        endpoint_.control().send(owner_.message_context(), member, what);
    }
  fail(what.why, what.text, what.names, false, what.reach, what.first);
  if (is_news && what.first != 0) fail_unmade(what);
}

// Some rank has not completed the collectives from told.first on. It lacks what they have made here.
void failure_spread::fail_unmade(const p2p::failure_message& told) noexcept {
  owner_.for_each_child([&](failure_spread& c) {
    const std::uint32_t made_by = c.owner_.made_by();
    if (made_by == 0 || collective_order::precedes(made_by, told.first)) return;
    c.fail(told.why, fmt::format("{} was not made on all ranks: {}", c.members_.name(), told.text),
           p2p::subject::other, true, p2p::extent::unmade);
  });
}

void failure_spread::lost_member(errc why, const std::string& text) noexcept {
  dead_member_ = {why, text};
  if (!order_.running().empty())
    engine().timers().arm(doubts_timer_, engine().platform().now() + patience_with_others);
}

// A collective that a dead member has reached may complete: what it sent came before its end. One that lacks something
// of it has ended by that, on this rank or another, which then tells all. What remains waits for a rank that says
// nothing.
void failure_spread::end_doubts(void* self) noexcept {
  auto& f = *static_cast<failure_spread*>(self);
  const core::time_point ended = f.doubts_timer_.when(), now = f.engine().now();
  const running_collective* const first = f.order_.running().front();
  if (f.shut_down_ || first == nullptr || first->since > ended - patience_with_others) return;
  // This rank was stopped meanwhile, and what has come waits.
  if (now > ended + patience_with_others)
    return f.engine().timers().arm(f.doubts_timer_, now + patience_with_others);
  f.fail(f.dead_member_.code,
         fmt::format("{} on {}: {}", first->describe(), f.members_.name(), f.dead_member_.text),
         p2p::subject::collective, true);
}

std::vector<int> failure_spread::failed_ranks() const {
  std::vector<int> failed;
  for (int r = 0; r < members_.size(); ++r)
    if (has_failed(r)) failed.push_back(r);
  return failed;
}

std::vector<int> failure_spread::failed_members() const noexcept {
  std::vector<int> failed = failed_ranks();
  for (int& r : failed) r = members_.world_rank(r);
  return failed;
}

void failure_spread::add_failed(std::span<const int> world_ranks) noexcept {
  for (const int member : world_ranks)
    if (const int r = members_.rank_of(member); r >= 0) told_failed_[static_cast<std::size_t>(r)] = true;
}

void failure_spread::shut_down() noexcept {
  const std::string text = "the runtime has ended";
  fail(errc::shut_down, text, p2p::subject::other, false, p2p::extent::one, 0);
  last_rounds_.stop();
  end_collectives(errc::shut_down, text, p2p::subject::other);
  doubts_timer_.cancel();
  shut_down_ = true;
}

}  // namespace tutti::comm
