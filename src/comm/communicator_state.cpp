// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator_state.hpp"

#include "comm/world.hpp"
#include "flight/recorder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <boost/asio/post.hpp>
#include <exception>
#include <ranges>
#include <tutti/algorithm.hpp>
#include <tutti/detail/operation_state.hpp>

namespace tutti::comm {

// Long compared with any collective of ranks that agree, short for a person.
constexpr auto notice_after = std::chrono::milliseconds(200);
// How often a long collective records for whom it waits, once it has lasted that long.
constexpr auto record_waits_every = std::chrono::seconds(1);

// A rank that has waited this long makes sure that it would notice the other's end.
constexpr auto check_after = std::chrono::milliseconds(20);
// In larger communicators a rank that waits for any member does not connect to all of them.
constexpr int most_checked_after = 1024;

// After a member's death, how long a collective may wait for others that live. They know of the death as well, and
// say so if they lack something.
constexpr auto patience_with_others = std::chrono::milliseconds(100);

// Of more members than these a rank tells some of a failure, and these tell the others.
constexpr int most_told_directly = 64;

// A rank whose loop runs answers much faster.
constexpr auto patience_with_answers = std::chrono::milliseconds(100);

namespace {

std::string size_text(std::uint16_t mark) {
  constexpr std::uint16_t hashed = collective_description::least_hashed_bytes;
  if (mark >= hashed) return fmt::format("{} or more bytes, size with hash {:04x}", hashed, mark);
  return mark == 1 ? "1 byte" : fmt::format("{} bytes", mark);
}

}  // namespace

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  const std::string text = fmt::format("{}", fmt::join(std::views::take(names, most), ", "));
  return names.size() <= most ? text : fmt::format("{} and {} more", text, names.size() - most);
}

p2p::fingerprint fingerprint_of(const collective_description& d) noexcept {
  auto print = std::bit_cast<p2p::fingerprint>(d);
  print[0] = static_cast<std::byte>(d.kind + 1);  // never all zero, which means point to point
  return print;
}

std::string describe(const p2p::fingerprint& print) {
  auto d = std::bit_cast<collective_description>(print);
  const char* const prefix = (d.kind & being_prepared) != 0 ? "prepare of " : "";
  const bool device = (d.kind & on_device) != 0;
  d.kind &= static_cast<std::uint8_t>(~(being_prepared | on_device));
  const auto kind = static_cast<detail::operation_kind>(d.kind - 1);
  if (d.kind == 0 || kind > detail::operation_kind::duplicate)
    return fmt::format("an unknown collective ({})", d.kind);
  const std::uint64_t count = d.count;
  std::string description;
  const auto say = [&description](const std::string& more) {
    description += (description.empty() ? "" : ", ") + more;
  };
  const detail::operation_row& row = detail::row_of(kind);
  // Only the size of such elements is known.
  const bool opaque = static_cast<element_type>(d.type) == element_type::opaque;
  const std::string type = opaque && d.reduction == 0 ? size_text(static_cast<std::uint16_t>(d.callable))
                                                      : name_of(static_cast<element_type>(d.type));
  if (kind == detail::operation_kind::group) {
    say(fmt::format("ranks with hash {:x}", count));
  } else if (row.counts_known()) {
    say(fmt::format("{}, counts with hash {:x}", type, count));
  } else if (row.uneven()) {
    say(type);
  } else if (row.out != detail::shape::nothing) {
    say(fmt::format("{} elements of {}", count, type));
  }
  if (const auto reduction = static_cast<reduce_kind>(d.reduction); reduction != reduce_kind::none)
    say(reduction == reduce_kind::user
            ? fmt::format("callable {} {:04x}", opaque ? "and size of elements with hash" : "of type",
                          std::uint64_t{d.callable})
            : name_of(reduction));
  if (d.root >= 0) say(fmt::format("{} {}", row.rooted ? "root" : "list of", d.root));
  if (device) say("in memory of devices");
  if (d.algorithm != 0 && d.reduction != 0)
    description += fmt::format("; algorithm {}", name_of(static_cast<algorithm>(d.algorithm)));
  return fmt::format("{}{}({})", prefix, detail::name_of(kind), description);
}

namespace {

// Whether each rank's part of such a collective ends only after all ranks have called it.
bool waits_for_all(const p2p::fingerprint& print) noexcept {
  using kind = detail::operation_kind;
  constexpr kind mutual[] = {kind::barrier, kind::all_reduce, kind::all_gather, kind::reduce_scatter,
                             kind::all_to_all};
  const auto d = std::bit_cast<collective_description>(print);
  const auto what = static_cast<kind>((d.kind & ~on_device) - 1);  // none of these if it is being prepared
  const bool is_empty = d.count == 0 && what != kind::barrier && (d.kind & on_device) == 0;
  return std::ranges::find(mutual, what) != std::end(mutual) && !is_empty;
}

}  // namespace

communicator_state::communicator_state(world& w, std::uint32_t id, std::uint32_t parent, std::string name,
                                       std::vector<int> members, std::uint32_t made_by)
    : world_(&w),
      loop_(w.loop()),
      executor_(loop_.executor()),
      endpoint_(&w.endpoint()),
      recorder_(&w.loop().recorder()),
      id_(id),
      parent_(parent),
      made_by_(made_by),
      name_(std::move(name)),
      members_(std::move(members)),
      ranks_(w.info().peers.size(), -1),
      timeout_(w.info().timeout),
      told_failed_(members_.size()),
      timer_(&expire, this),
      notice_timer_(&give_notices, this),
      check_timer_(&check_waiting, this),
      doubts_timer_(&end_doubts, this),
      asked_(members_.size()) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    ranks_[static_cast<std::size_t>(members_[i])] = static_cast<int>(i);
    if (members_[i] == w.info().rank) rank_ = static_cast<int>(i);
  }
  std::vector<std::string> host_ids;
  for (const int member : members_) host_ids.push_back(w.info().record(member).host_id);
  where_ = topology(host_ids, rank_);
  if (transport::neighbours* const near = w.memory_of(members_))
    segment_ = std::make_unique<comm::collective_segment>(loop_, *near, members_, rank_);
  record_place_ = recorder_->open_communicator(id_, rank_, size(), name_);
  endpoint_->open_context(message_context(), *this);
  endpoint_->open_context(collective_context(), *this);
  endpoint_->control().tell_early_failure(message_context(), *this);
}

communicator_state::~communicator_state() = default;

void communicator_state::rename(std::string name) {
  name_ = std::move(name);
  recorder_->close_communicator(record_place_);
  record_place_ = recorder_->open_communicator(id_, rank_, size(), name_);
}

int communicator_state::rank_of(int world_rank) const noexcept {
  return world_rank < 0 ? world_rank : ranks_[static_cast<std::size_t>(world_rank)];
}

void communicator_state::require_loop_thread(const char* call) const {
  if (!loop_.on_this_thread())
    throw error(errc::wrong_thread, fmt::format("{} on {}: {}", call, name_, core::wrong_thread_text()));
}

std::string communicator_state::timeout_text() const {
  return fmt::format("timed out after {} s", std::chrono::duration<double>(timeout_).count());
}

std::string communicator_state::describe(int rank) const {
  if (world_ == nullptr) return fmt::format("rank {}", rank);
  const int there = world_rank(rank);
  if (there == rank) return world_->describe(rank);
  const core::endpoint_record& record = world_->info().record(there);
  return fmt::format("rank {} (rank {} of the world, host {}, pid {})", rank, there, record.host, record.pid);
}

std::string communicator_state::number_here(int world_rank) const {
  const int rank = rank_of(world_rank);
  if (rank < 0 || rank == world_rank) return {};
  return fmt::format("; rank {} of the world is rank {} of {}", world_rank, rank, name_);
}

// ---- the order of collectives ----

std::uint32_t communicator_state::next_sequence(const p2p::fingerprint& mine) noexcept {
  const std::uint32_t sequence = next_sequence_;
  // Tags are not negative: 31 bits, then from the beginning.
  next_sequence_ = sequence == 0x7fffffff ? 1 : sequence + 1;
  recorder_->called(record_place_, sequence);
  place& p = places_[sequence % remembered];
  const bool seen = !p.started && p.sequence == sequence && p.peer >= 0;
  const place early = p;
  p = place{sequence, true, -1, mine};
  if (seen && early.print != mine) mismatch(early.peer, sequence, mine, early.print);
  return sequence;
}

bool communicator_state::admit(int peer, std::uint32_t sequence, const p2p::fingerprint& theirs) noexcept {
  if (ends(sequence) && !is_running(sequence)) return false;
  place& p = places_[sequence % remembered];
  if (p.sequence == sequence && p.started) {
    if (p.print == theirs) return true;
    mismatch(peer, sequence, p.print, theirs);
    return false;
  }
  // Not started here yet. Keeps the first fingerprint seen for the place, to compare it later. If the place
  // still serves a started collective, the comparison happens where the message meets its receive.
  const auto is_from = [sequence](std::uint32_t first) { return !precedes(sequence, first); };
  if (is_from(next_sequence_) && (!p.started || is_from(p.sequence))) {
    if (!(p.sequence == sequence && p.peer >= 0)) p = place{sequence, false, peer, theirs};
  }
  return true;
}

std::string communicator_state::mismatch_text(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                                              const p2p::fingerprint& theirs) const {
  const std::string here = comm::describe(mine), there = comm::describe(theirs);
  const std::string what =
      here == there ? fmt::format("before collective #{} on {}, {} and {} called collectives that differ",
                                  sequence, name_, describe(rank_), describe(rank_of(peer)))
                    : fmt::format("collective #{} on {}: {} called {}, but {} called {}", sequence, name_,
                                  describe(rank_), here, describe(rank_of(peer)), there);
  return what +
         "; all ranks must call the same collectives in the same order, with the same counts, element types, "
         "reductions and roots";
}

void communicator_state::mismatch(int peer, std::uint32_t sequence, const p2p::fingerprint& mine,
                                  const p2p::fingerprint& theirs) noexcept {
  fail(errc::mismatch, mismatch_text(peer, sequence, mine, theirs), p2p::subject::collective, true,
       p2p::extent::one, first_open(sequence));
}

void communicator_state::add(running_collective& c) noexcept {
  running_.push_back(c);
  c.since = engine().recent();
  if (!notice_timer_.armed() || notice_timer_.when() > c.since + notice_after)
    engine().timers().arm(notice_timer_, c.since + notice_after);
}

// Ranks in different collectives may wait for each other to begin, so that no frame meets the other's
// fingerprint. A rank that has waited a while therefore sends notices to the ranks that it waits for. That
// suffices: in a circle of waiting ranks, one waits for a rank whose collective of that number differs. No
// other rank may be told: one that is not waited for may have finished and left.
void communicator_state::give_notices(void* self) noexcept {
  auto& c = *static_cast<communicator_state*>(self);
  const core::time_point now = c.engine().now();
  for (running_collective* r = c.running_.front(); r != nullptr; r = c.running_.after(*r)) {
    // For explanations: in a collective that all have called, only its ranks know for whom they wait.
    if (r->record.number != 0) c.recorder_->waits_for(r->record, c.where(r->sequence).waits_for);
    if (r->noticed) continue;
    if (r->since + notice_after > now) {
      c.engine().timers().arm(c.notice_timer_, r->since + notice_after);
      return;
    }
    r->noticed = true;
    const place& p = c.places_[r->sequence % remembered];
    if (p.sequence != r->sequence) continue;
    c.endpoint_->give_notices(c.collective_context(), r->sequence, p.print);
    if (const int rank = c.segment_ != nullptr ? c.segment_->waits_for(r->sequence) : -1; rank >= 0)
      c.endpoint_->control().send(c.collective_context(), c.world_rank(rank),
                                  p2p::notice_message{r->sequence, p.print});
  }
  if (!c.running_.empty()) c.engine().timers().arm(c.notice_timer_, now + record_waits_every);
}

// ---- which ranks have not come ----

bool communicator_state::is_running(std::uint32_t sequence) const noexcept {
  for (const running_collective* r = running_.front(); r != nullptr; r = running_.after(*r))
    if (r->sequence == sequence) return true;
  return false;
}

p2p::progress_message communicator_state::where(std::uint32_t sequence) const noexcept {
  using state = p2p::progress_message::state;
  p2p::progress_message here;
  here.last = next_sequence_ - 1;
  const place& p = places_[here.last % remembered];
  if (p.sequence == here.last && p.started) here.print = p.print;
  if (!precedes(sequence, next_sequence_)) {
    here.at = state::not_called;
  } else {
    here.at = is_running(sequence) ? state::waiting : state::done;
    here.waits_for = endpoint_->waits_for(collective_context(), sequence);
    if (const int rank = segment_ != nullptr ? segment_->waits_for(sequence) : -1; rank >= 0)
      here.waits_for = world_rank(rank);
  }
  return here;
}

void communicator_state::explain_and_fail(std::uint32_t sequence, errc why, std::string text) noexcept {
  if (world_ == nullptr || !is_running(sequence)) return;
  inquiries_.push_back({sequence, why, std::move(text)});
  if (inquiries_.size() == 1) inquiring_.start(inquire());
}

task<> communicator_state::inquire() {
  for (; !inquiries_.empty(); inquiries_.pop_front()) {
    inquiry& first = inquiries_.front();
    if (!is_running(first.sequence)) continue;  // it ended meanwhile
    first.answers.resize(members_.size());
    std::ptrdiff_t asked = 0;
    for (const int member : members_) {
      if (member == world_rank(rank_) || endpoint_->peers().gone(member)) continue;
      ++asked;
      endpoint_->control().send(collective_context(), member, p2p::inquiry_message{first.sequence});
    }
    const auto has_come = [](const auto& answer) { return answer.has_value(); };
    const core::time_point until = engine().platform().now() + patience_with_answers;
    while (std::ranges::count_if(first.answers, has_come) < asked && engine().now() < until) {
      co_await core::pause(loop_, std::chrono::milliseconds(1));
    }
    if (is_running(first.sequence))
      fail(first.why, first.text + "; " + findings(first), p2p::subject::collective, true);
  }
}

void communicator_state::told(int peer, const p2p::progress_message& there) noexcept {
  const int rank = rank_of(peer);
  if (rank < 0) return;
  for (inquiry* const asked : {inquiries_.empty() ? nullptr : &inquiries_.front(), comparing_})
    if (asked != nullptr && asked->sequence == there.sequence && !asked->answers.empty())
      asked->answers[static_cast<std::size_t>(rank)] = there;
}

// What a rank sent in its collectives comes before its answer, and is compared when it comes. On the segment
// nobody need answer: the ranks read what the others called.
task<> communicator_state::compare_last(core::time_point deadline) {
  const std::uint32_t last = next_sequence_ - 1;
  const place& called = places_[last % remembered];
  if (size() == 1 || !called.started || called.sequence != last || waits_for_all(called.print)) co_return;
  const bool on_segment = segment_ != nullptr && segment_->is_last(last);
  inquiry here;
  here.sequence = last;
  here.answers.resize(members_.size());
  struct comparison {
    inquiry*& it;
    ~comparison() { it = nullptr; }
  } const comparing{comparing_ = &here};
  std::vector<bool> asked(members_.size());
  while (!failed() && running_.empty() && engine().now() < deadline) {
    bool all = true;
    for (int r = 0; r < size() && !failed(); ++r) {
      const int member = world_rank(r);
      if (r == rank_) continue;
      if (on_segment) {
        const auto seen = segment_->check_arrival(r);
        if (seen == collective_segment::arrival::other)
          mismatch(member, last, segment_->print(), segment_->fingerprint_of(r));
        all = all && (seen != collective_segment::arrival::not_yet || endpoint_->peers().gone(member));
        continue;
      }
      if (endpoint_->peers().gone(member)) continue;
      if (size() > most_told_directly && !endpoint_->peers().in_touch(member)) continue;
      std::optional<p2p::progress_message>& answer = here.answers[static_cast<std::size_t>(r)];
      const bool again = answer && answer->at == p2p::progress_message::state::not_called;
      if (again || !asked[static_cast<std::size_t>(r)]) {
        answer.reset();
        asked[static_cast<std::size_t>(r)] = true;
        endpoint_->control().send(collective_context(), member, p2p::inquiry_message{last});
      }
      all = all && answer;
    }
    if (all) co_return;
    co_await core::pause(loop_, std::chrono::milliseconds(1));
  }
}

std::string communicator_state::findings(const inquiry& all) const {
  using state = p2p::progress_message::state;
  std::vector<std::string> absent, unresponsive, gone;
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const std::optional<p2p::progress_message>& there = all.answers[static_cast<std::size_t>(r)];
    if (!there) {
      (endpoint_->peers().gone(world_rank(r)) ? gone : unresponsive).push_back(describe(r));
    } else if (there->at == state::not_called) {
      absent.push_back(there->last == 0
                           ? fmt::format("{}, which has called none on {} yet", describe(r), name_)
                           : fmt::format("{}, of which the last on {} was #{}, {}", describe(r), name_,
                                         there->last, comm::describe(there->print)));
    } else if (there->at == state::no_communicator) {
      absent.push_back(fmt::format("{}, which has let go of {}", describe(r), name_));
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

// ---- failure ----

std::uint32_t communicator_state::first_open(std::uint32_t also) const noexcept {
  std::uint32_t first = also != 0 ? also : next_sequence_;
  for (const running_collective* c = running_.front(); c != nullptr; c = running_.after(*c))
    if (precedes(c->sequence, first)) first = c->sequence;
  return first;
}

void communicator_state::fail(errc why, const std::string& text, p2p::subject names, bool tell,
                              p2p::extent reach, std::optional<std::uint32_t> from) noexcept {
  if (world_ == nullptr) return;
  // What this rank gives up after a failure or a member's death, it gives up because of that.
  if (tell && p2p::given_up(why)) {
    const bool dies = !failed() && doubts_timer_.armed();
    const p2p::departure cause = dies ? dead_member_ : p2p::departure{failure_.why, failure_.text};
    if ((dies || failed()) && cause.code != why)
      return fail(cause.code, cause.text, p2p::subject::other, tell, reach, from);
  }
  const std::uint32_t first = from ? *from : first_open();
  if (!fails_earlier(first)) {
    // It failed for another reason; communicators made from it may still be working.
    if (reach != p2p::extent::one) fail_children(why, text, tell);
    return;
  }
  if (!failed()) {
    failure_ = {.why = why, .text = text, .names = names};
    recorder_->communicator_failed(record_place_);
  }
  failure_.first = first;
  const p2p::failure_message told{why, text, reach, failed_members(), first, names};
  // The dead rank is also in the communicator that this one was made from, which may hear of it later.
  for (communicator_state* c = this; why == errc::peer_failed && c != nullptr && c->parent_ != c->id_;) {
    c = world_->find(2 * c->parent_);
    if (c == nullptr) continue;
    c->add_failed(told.failed);
    if (c->dead_member_.text.empty()) c->dead_member_ = {why, text};
  }
  if (tell)
    for (int r = 0; r < size(); ++r)
      if (tells(r)) endpoint_->control().send(message_context(), world_rank(r), told);
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
bool communicator_state::tells(int rank) const noexcept {
  if (rank == rank_) return false;
  if (size() <= most_told_directly || endpoint_->peers().in_touch(world_rank(rank))) return true;
  const auto away = static_cast<unsigned>(rank > rank_ ? rank - rank_ : rank - rank_ + size());
  return std::has_single_bit(away) || std::has_single_bit(static_cast<unsigned>(size()) - away);
}

void communicator_state::fail_children(errc why, const std::string& text, bool tell) noexcept {
  const std::vector<int> known = failed_members();
  world_->for_each([&](communicator_state& c) {
    if (&c == this || c.parent() != id_) return;
    c.add_failed(known);
    std::string text_there = text;
    if (why == errc::peer_failed)
      for (const int member : known) text_there += c.number_here(member);
    // What another rank has completed there is not known.
    c.fail(why, text_there, p2p::subject::other, tell, p2p::extent::children, tell ? c.first_open() : 0);
  });
}

std::string communicator_state::text_for(const running_collective& c, const std::string& text,
                                         p2p::subject names) const {
  return names == p2p::subject::collective ? text : fmt::format("{} on {}: {}", c.describe(), name_, text);
}

void communicator_state::end_collectives(errc why, const std::string& text, p2p::subject names) noexcept {
  running_.for_each([&](running_collective& c) {
    if (!ends(c.sequence)) return;
    c.end(why, text_for(c, text, names));
    reported_ = true;
  });
}

void communicator_state::last_rounds::begin(errc why, const std::string& text, p2p::subject names) noexcept {
  stop();
  if (of_.running_.empty()) return;
  left_ = 2;  // this round has begun
  failure_ = {.why = why, .text = text, .names = names};
  of_.engine().add(*this);
  of_.loop_.wake();
}

void communicator_state::last_rounds::stop() noexcept {
  if (std::exchange(left_, 0) > 0) of_.engine().remove(*this);
}

bool communicator_state::last_rounds::poll() noexcept {
  if (--left_ > 0) return true;
  of_.engine().remove(*this);
  of_.end_collectives(failure_.why, failure_.text, failure_.names);
  return true;
}

bool communicator_state::end_messages() noexcept {
  bool any = false;
  const auto is_collective = [this](const core::completion& a) {
    const running_collective* c = running_.front();
    while (c != nullptr && c != &a) c = running_.after(*c);
    return c != nullptr;
  };
  for (auto* const list : {&waiting_, &patient_}) {
    base::intrusive_list<core::completion, core::waiting_tag> pending;
    pending.splice_back(*list);
    while (core::completion* a = pending.pop_front()) {
      if (is_collective(*a)) {
        list->push_back(*a);
      } else {
        a->on_expire(*a);
        any = true;
      }
    }
  }
  return any;
}

void communicator_state::failed_remotely(int peer, const p2p::failure_message& told) noexcept {
  if (world_ == nullptr) return;
  add_failed(told.failed);
  // Passed on before anything is taken back. A rank that is communicating with this one then hears the reason
  // first, not that a message was cancelled or that this rank has left.
  const bool is_news = fails_earlier(told.first);
  if (is_news)
    for (int r = 0; r < size(); ++r) {
      const int member = world_rank(r);
      const bool near = r != rank_ && endpoint_->peers().in_touch(member);
      if (member != peer && (near || (size() > most_told_directly && tells(r))))
        endpoint_->control().send(message_context(), member, told);
    }
  fail(told.why, told.text, told.names, false, told.reach, told.first);
  if (is_news && told.first != 0) fail_unmade(told);
}

// Some rank has not completed the collectives from told.first on. It lacks what they have made here.
void communicator_state::fail_unmade(const p2p::failure_message& told) noexcept {
  world_->for_each([&](communicator_state& c) {
    if (c.parent() != id_ || c.made_by_ == 0 || precedes(c.made_by_, told.first)) return;
    c.fail(told.why, fmt::format("{} was not made on all ranks: {}", c.name(), told.text),
           p2p::subject::other, true, p2p::extent::unmade);
  });
}

void communicator_state::peer_closed(int peer, errc why, const std::string& text) noexcept {
  const int rank = rank_of(peer);
  if (rank < 0) return;
  const std::string text_here = text + number_here(peer);
  if (segment_ != nullptr) segment_->rank_gone(rank, why, text_here);
  // After a failure only collectives remain for which the rank that failed it said that it needs nothing
  // more. Those that need something from `peer` end by that.
  if (why == errc::peer_left || failed()) return;
  // No collective that it has not reached can succeed. Point to point between the others goes on.
  dead_member_ = {why, text_here};
  if (!running_.empty())
    engine().timers().arm(doubts_timer_, engine().platform().now() + patience_with_others);
}

// A collective that a dead member has reached may complete: what it sent came before its end. One that lacks something
// of it has ended by that, on this rank or another, which then tells all. What remains waits for a rank that says
// nothing.
void communicator_state::end_doubts(void* self) noexcept {
  auto& c = *static_cast<communicator_state*>(self);
  const core::time_point ended = c.doubts_timer_.when(), now = c.engine().now();
  const running_collective* const first = c.running_.front();
  if (c.world_ == nullptr || first == nullptr || first->since > ended - patience_with_others) return;
  // This rank was stopped meanwhile, and what has come waits.
  if (now > ended + patience_with_others)
    return c.engine().timers().arm(c.doubts_timer_, now + patience_with_others);
  c.fail(c.dead_member_.code, fmt::format("{} on {}: {}", first->describe(), c.name_, c.dead_member_.text),
         p2p::subject::collective, true);
}

void communicator_state::closed_remotely(int peer) noexcept {
  const int rank = rank_of(peer);
  if (rank < 0) return;
  if (segment_ != nullptr) segment_->rank_gone(rank, errc::peer_left, closed_text(peer));
  endpoint_->closed_by(message_context(), peer);
  endpoint_->closed_by(collective_context(), peer);
}

std::string communicator_state::closed_text(int peer) const {
  return fmt::format(
      "{} has closed {}, on which this rank waits for it: its last handle there has gone; keep one on every "
      "rank until all are done",
      describe(rank_of(peer)), name_);
}

std::vector<int> communicator_state::failed_ranks() const {
  std::vector<int> failed;
  for (int r = 0; r < size(); ++r)
    if (has_failed(r)) failed.push_back(r);
  return failed;
}

std::vector<int> communicator_state::failed_members() const noexcept {
  std::vector<int> failed = failed_ranks();
  for (int& r : failed) r = world_rank(r);
  return failed;
}

void communicator_state::add_failed(std::span<const int> world_ranks) noexcept {
  for (const int member : world_ranks)
    if (const int r = rank_of(member); r >= 0) told_failed_[static_cast<std::size_t>(r)] = true;
}

std::vector<int> communicator_state::suspected_ranks() const {
  std::vector<int> suspected;
  for (int r = 0; r < size(); ++r)
    if (world_->watch().suspects(world_rank(r))) suspected.push_back(r);
  return suspected;
}

void communicator_state::mark_waited_for(std::vector<p2p::waits>& by_peer) const noexcept {
  if (segment_ == nullptr) return;
  for (const running_collective* c = running_.front(); c != nullptr; c = running_.after(*c))
    if (const int rank = segment_->waits_for(c->sequence); rank >= 0)
      by_peer[static_cast<std::size_t>(world_rank(rank))] = p2p::waits::for_it;
}

// ---- waiting under the default timeout ----

void communicator_state::arm_timers(core::time_point now) noexcept {
  core::timer_queue& timers = engine().timers();
  if (!check_timer_.armed()) timers.arm(check_timer_, now + check_after);
  if (core::completion* const first = waiting_.front(); first != nullptr && !timer_.armed())
    timers.arm(timer_, first->started + timeout_);
}

// Connections are made when something is sent. A rank that only waits for another has none, and would not
// hear of its end. The other may also have closed this communicator already.
void communicator_state::check_waiting(void* self) noexcept {
  auto& c = *static_cast<communicator_state*>(self);
  if (c.world_ == nullptr || (c.failed() && c.running_.empty())) return;
  if (std::exchange(c.waits_for_anyone_, false) && c.size() <= most_checked_after)
    for (const int member : c.members_)
      if (member != c.world_rank(c.rank_)) c.ask_whether_closed(member);
  for (const std::uint32_t context : {c.message_context(), c.collective_context()})
    c.endpoint_->for_each_awaited(context, [&c](int member) { c.ask_whether_closed(member); });
}

// Once: a rank that closes a communicator tells the ranks that it is in touch with.
void communicator_state::ask_whether_closed(int member) noexcept {
  const int rank = rank_of(member);
  if (rank < 0 || asked_[static_cast<std::size_t>(rank)]) return;
  asked_[static_cast<std::size_t>(rank)] = true;
  endpoint_->control().send(collective_context(), member, p2p::inquiry_message());
}

void communicator_state::expire(void* self) noexcept {
  auto& c = *static_cast<communicator_state*>(self);
  const core::time_point now = c.engine().now();
  while (core::completion* a = c.waiting_.front()) {
    if (a->started + c.timeout_ > now) {
      c.engine().timers().arm(c.timer_, a->started + c.timeout_);
      return;
    }
    c.waiting_.pop_front();
    a->on_expire(*a);
  }
}

// ---- lifetime ----

void communicator_state::release_reference() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    const std::lock_guard lock(ending_);
    // An exception that destroys the handle may be the end of main. This rank then fails the communicator
    // (world::fail) before it closes it, so that the others hear of the failure first.
    const bool unwinds = std::uncaught_exceptions() > 0;
    if (world_ != nullptr && (unwinds || !loop_.on_this_thread())) {
      // Closed when the handler is destroyed: after its call, or without one if the runtime has ended.
      using closed_at_end = std::unique_ptr<communicator_state, void (*)(communicator_state*)>;
      boost::asio::post(
          loop_.executor(),
          [c = closed_at_end(this, [](communicator_state* of) { of->last_reference_gone(); })] {});
      return;
    }
  }
  last_reference_gone();
}

void communicator_state::last_reference_gone() noexcept {
  {
    const std::lock_guard other_thread_is_done(ending_);
  }
  world* w = world_;
  if (w == nullptr) {
    delete this;
    return;
  }
  devices_.reset();  // closes the communicators beside this one
  recorder_->close_communicator(record_place_);
  if (failed()) endpoint_->control().keep_failure(message_context(), failure_to_tell(p2p::extent::one));
  // A rank that closes its last communicator leaves the world, and says that instead.
  for (const int member : members_)
    if (!w->is_last(*this) && member != world_rank(rank_) && endpoint_->peers().in_touch(member))
      endpoint_->control().announce_closing(collective_context(), member);
  endpoint_->close_context(message_context());
  endpoint_->close_context(collective_context());
  w->retire(std::move(segment_), failed());
  w->closed(*this);
}

void communicator_state::detach() noexcept {
  const bool failed_before = failed();
  const std::string text = "the runtime has ended";
  fail(errc::shut_down, text, p2p::subject::other, false, p2p::extent::one, 0);
  last_rounds_.stop();
  end_collectives(errc::shut_down, text, p2p::subject::other);
  world_->retire(std::move(segment_), failed_before);
  timer_.cancel();
  notice_timer_.cancel();
  check_timer_.cancel();
  doubts_timer_.cancel();
  inquiring_.clear();
  recorder_->close_communicator(record_place_);
  endpoint_->close_context(message_context());
  endpoint_->close_context(collective_context());
  endpoint_ = nullptr;
  const std::lock_guard lock(ending_);
  world_ = nullptr;
}

}  // namespace tutti::comm

namespace tutti::detail {

void add_reference(communicator_state& state) noexcept { state.add_reference(); }
void release_reference(communicator_state& state) noexcept { state.release_reference(); }
boost::asio::io_context::executor_type executor_of(const communicator_state& state) noexcept {
  return state.executor();
}

}  // namespace tutti::detail
