// SPDX-License-Identifier: Apache-2.0
#include "comm/progress_exchange.hpp"

#include "comm/fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::comm {
namespace {

// Long compared with any collective of ranks that agree, short for a person.
constexpr auto notice_after = std::chrono::milliseconds(200);
// How often a long collective records for whom it waits, once it has lasted that long.
constexpr auto record_waits_every = std::chrono::seconds(1);
// It looks up for whom within this time, beginning with the collectives that began first: the more there are, the longer
// each takes, and thousands would leave the loop no time for anything else.
constexpr auto recording_takes_at_most = std::chrono::milliseconds(10);

// In larger communicators a rank that waits for any member does not connect to all of them.
constexpr int most_checked_after = 1024;

// A rank whose loop runs answers much faster.
constexpr auto patience_with_answers = std::chrono::milliseconds(100);

}  // namespace

progress_exchange::progress_exchange(core::loop& loop, p2p::endpoint& endpoint, std::uint32_t context,
                                     const group& members, collective_order& order, failure_spread& failure,
                                     const std::unique_ptr<host_segments>& segments)
    : loop_(loop),
      endpoint_(endpoint),
      context_(context),
      members_(members),
      order_(order),
      failure_(failure),
      segments_(segments),
      notice_timer_(&give_notices, this),
      asked_(members.members().size()) {}

int progress_exchange::waits_on_segment_for(std::uint32_t sequence) const noexcept {
  const int rank = segments_ != nullptr ? segments_->waits_for(sequence) : -1;
  return rank >= 0 ? members_.world_rank(rank) : -1;
}

std::string progress_exchange::mismatch_text(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                                             const p2p::fingerprint& theirs) const {
  std::string here = comm::describe(mine), there = comm::describe(theirs), cause;
  if (here == there) {
    const std::string here_by = describe_algorithm(mine), there_by = describe_algorithm(theirs);
    if (here_by != there_by) {
      here += " by " + here_by;
      there += " by " + there_by;
      cause =
          "; TUTTI_ALGORITHMS, TUTTI_TUNING, TUTTI_FLAT_RANKS and with() choose algorithms: set them to the "
          "same on all ranks";
    }
  }
  const std::string what =
      here == there ? fmt::format("before collective #{} on {}, {} and {} called collectives that differ",
                                  sequence, members_.name(), members_.describe(members_.rank()),
                                  members_.describe(members_.rank_of(peer)))
                    : fmt::format("collective #{} on {}: {} called {}, but {} called {}", sequence,
                                  members_.name(), members_.describe(members_.rank()), here,
                                  members_.describe(members_.rank_of(peer)), there);
  return what +
         "; all ranks must call the same collectives in the same order, with the same counts, element types, "
         "reductions and roots" +
         cause;
}

void progress_exchange::mismatch(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                                 const p2p::fingerprint& theirs) noexcept {
  failure_.fail(errc::mismatch, mismatch_text(peer, sequence, mine, theirs), p2p::subject::collective, true,
                p2p::extent::one, order_.first_open(sequence));
}

void progress_exchange::add(running_collective& c) noexcept {
  order_.add(c);
  c.since = engine().recent();
  if (!notice_timer_.armed() || notice_timer_.when() > c.since + notice_after)
    engine().timers().arm(notice_timer_, c.since + notice_after);
}

// Ranks in different collectives may wait for each other to begin, so that no frame meets the other's
// fingerprint. A rank that has waited a while therefore sends notices to the ranks that it waits for. That
// suffices: in a circle of waiting ranks, one waits for a rank whose collective of that number differs. No
// other rank may be told: one that is not waited for may have finished and left.
void progress_exchange::give_notices(void* self) noexcept {
  auto& p = *static_cast<progress_exchange*>(self);
  const core::time_point now = p.engine().now();
  for (running_collective* r = p.order_.running().front(); r != nullptr; r = p.order_.running().after(*r)) {
    // For explanations: in a collective that all have called, only its ranks know for whom they wait.
    if (r->record.number != 0 && p.engine().platform().now() < now + recording_takes_at_most)
      p.loop_.recorder().waits_for(r->record, p.where(r->sequence).waits_for);
    if (r->noticed) continue;
    if (r->since + notice_after > now) {
      p.engine().timers().arm(p.notice_timer_, r->since + notice_after);
      return;
    }
    r->noticed = true;
    const p2p::fingerprint* const print = p.order_.called(r->sequence);
    if (print == nullptr) continue;
    p.endpoint_.give_notices(p.context_, r->sequence, *print);
    if (const int member = p.waits_on_segment_for(r->sequence); member >= 0)
      p.send(member, p2p::notice_message{r->sequence, *print});
  }
  if (!p.order_.running().empty())
    p.engine().timers().arm(p.notice_timer_, p.engine().platform().now() + record_waits_every);
}

p2p::progress_message progress_exchange::where(std::uint32_t sequence) const noexcept {
  using state = p2p::progress_message::state;
  p2p::progress_message here;
  here.last = order_.last();
  if (const p2p::fingerprint* const print = order_.called(order_.last())) here.print = *print;
  if (!collective_order::precedes(sequence, order_.next())) {
    here.at = state::not_called;
  } else {
    here.at = order_.is_running(sequence) ? state::waiting : state::done;
    here.waits_for = waits_on_segment_for(sequence);
    if (here.waits_for < 0) here.waits_for = endpoint_.waits_for(context_, sequence);
  }
  return here;
}

void progress_exchange::explain_and_fail(std::uint32_t sequence, errc why, std::string text) noexcept {
  if (shut_down_ || !order_.is_running(sequence)) return;
  inquiries_.push_back({sequence, why, std::move(text)});
  if (inquiries_.size() == 1) inquiring_.start(inquire());
}

task<> progress_exchange::inquire() {
  for (; !inquiries_.empty(); inquiries_.pop_front()) {
    inquiry& first = inquiries_.front();
    if (!order_.is_running(first.sequence)) continue;  // it ended meanwhile
    first.answers.resize(members_.members().size());
    std::ptrdiff_t asked = 0;
    for (const int member : members_.members()) {
      if (member == members_.world_rank(members_.rank()) || endpoint_.peers().gone(member)) continue;
      ++asked;
      send(member, p2p::inquiry_message{first.sequence});
    }
    const auto has_come = [](const auto& answer) { return answer.has_value(); };
    const core::time_point until = engine().platform().now() + patience_with_answers;
    while (std::ranges::count_if(first.answers, has_come) < asked && engine().now() < until) {
      co_await core::pause(loop_, std::chrono::milliseconds(1));
    }
    if (order_.is_running(first.sequence))
      failure_.fail(first.why, first.text + "; " + findings(first), p2p::subject::collective, true);
  }
}

void progress_exchange::told(int peer, const p2p::progress_message& there) noexcept {
  const int rank = members_.rank_of(peer);
  if (rank < 0) return;
  for (inquiry* const asked : {inquiries_.empty() ? nullptr : &inquiries_.front(), comparing_})
    if (asked != nullptr && asked->sequence == there.sequence && !asked->answers.empty())
      asked->answers[static_cast<std::size_t>(rank)] = there;
}

// What a rank sent in its collectives comes before its answer, and is compared when it comes. On the segment
// nobody need answer: the ranks read what the others called.
task<> progress_exchange::compare_last(core::time_point deadline) {
  const std::uint32_t last = order_.last();
  const p2p::fingerprint* const called = order_.called(last);
  if (members_.size() == 1 || called == nullptr || waits_for_all(*called)) co_return;
  collective_segment* const segment = segments_ != nullptr ? segments_->flat() : nullptr;
  const bool on_segment = segment != nullptr && segment->is_last(last);
  inquiry here;
  here.sequence = last;
  here.answers.resize(members_.members().size());
  struct comparison {
    inquiry*& it;
    ~comparison() { it = nullptr; }
  } const comparing{comparing_ = &here};
  std::vector<bool> asked(members_.members().size());
  while (!failure_.failed() && order_.running().empty() && engine().now() < deadline) {
    bool all = true;
    for (int r = 0; r < members_.size() && !failure_.failed(); ++r) {
      const int member = members_.world_rank(r);
      if (r == members_.rank()) continue;
      if (on_segment) {
        const auto seen = segment->check_arrival(r);
        if (seen == collective_segment::arrival::other)
          mismatch(member, last, segment->print(), segment->fingerprint_of(r));
        all = all && (seen != collective_segment::arrival::not_yet || endpoint_.peers().gone(member));
        continue;
      }
      if (endpoint_.peers().gone(member)) continue;
      if (members_.size() > most_told_directly && !endpoint_.peers().in_touch(member)) continue;
      std::optional<p2p::progress_message>& answer = here.answers[static_cast<std::size_t>(r)];
      const bool again = answer && answer->at == p2p::progress_message::state::not_called;
      if (again || !asked[static_cast<std::size_t>(r)]) {
        answer.reset();
        asked[static_cast<std::size_t>(r)] = true;
        send(member, p2p::inquiry_message{last});
      }
      all = all && answer;
    }
    if (all) co_return;
    co_await core::pause(loop_, std::chrono::milliseconds(1));
  }
}

std::string progress_exchange::findings(const inquiry& all) const {
  using state = p2p::progress_message::state;
  std::vector<std::string> absent, unresponsive, gone;
  for (int r = 0; r < members_.size(); ++r) {
    if (r == members_.rank()) continue;
    const std::optional<p2p::progress_message>& there = all.answers[static_cast<std::size_t>(r)];
    if (!there) {
      (endpoint_.peers().gone(members_.world_rank(r)) ? gone : unresponsive).push_back(members_.describe(r));
    } else if (there->at == state::not_called) {
      absent.push_back(
          there->last == 0
              ? fmt::format("{}, which has called none on {} yet", members_.describe(r), members_.name())
              : fmt::format("{}, of which the last on {} was #{}, {}", members_.describe(r), members_.name(),
                            there->last, comm::describe(there->print)));
    } else if (there->at == state::no_communicator) {
      absent.push_back(fmt::format("{}, which has let go of {}", members_.describe(r), members_.name()));
    }
  }
  std::string text;
  const auto say = [&text](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (!absent.empty()) say("not called by " + list_of(absent));
  if (!gone.empty()) say("gone: " + list_of(gone));
  if (!unresponsive.empty())
    say(fmt::format("no answer within {} ms from {}: {}", patience_with_answers.count(),
                    list_of(unresponsive), why_silent));
  if (text.empty())
    say("all ranks have called it: it is slower than its time limit allows (with_timeout, or else "
        "init_options::timeout, TUTTI_TIMEOUT)");
  return text;
}

void progress_exchange::mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept {
  for (const running_collective* c = order_.running().front(); c != nullptr; c = order_.running().after(*c))
    if (const int member = waits_on_segment_for(c->sequence); member >= 0)
      by_peer[static_cast<std::size_t>(member)] = p2p::waits::for_it;
}

// Once: a rank that closes a communicator tells the ranks that it is in touch with.
void progress_exchange::ask_who_closes(int member) noexcept {
  const int rank = members_.rank_of(member);
  if (rank < 0 || asked_[static_cast<std::size_t>(rank)]) return;
  asked_[static_cast<std::size_t>(rank)] = true;
  send(member, p2p::inquiry_message());
}

void progress_exchange::ask_who_closes(std::uint32_t message_context, bool anyone) noexcept {
  if (anyone && members_.size() <= most_checked_after)
    for (const int member : members_.members())
      if (member != members_.world_rank(members_.rank())) ask_who_closes(member);
  for (const std::uint32_t context : {message_context, context_})
    endpoint_.for_each_awaited(context, [this](int member) { ask_who_closes(member); });
}

void progress_exchange::shut_down() noexcept {
  notice_timer_.cancel();
  inquiring_.clear();
  shut_down_ = true;
}

}  // namespace tutti::comm
