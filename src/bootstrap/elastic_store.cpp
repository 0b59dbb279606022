// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/elastic_store.hpp"

#include "base/fields.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/stored_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <optional>
#include <tutti/as_result.hpp>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

// How the log goes on at an epoch.
struct decision {
  // come_again: a launcher has become the coordinator, and knows of no arrivals. past: a world whose members are in a
  // later one.
  enum class kind : std::uint8_t { world, refusal, come_again, past };
  // Ranks that follow each other, and the processes that have them: these started so many times before.
  struct seats {
    int number = 0;  // of the first; the next has the next one
    int start = 0;
    int ranks = 0;
  };
  kind what = kind::past;
  peer_table table = {};  // of the world
  std::vector<seats> members = {};
  std::string why = {};  // there will be no further world
};
constexpr auto highest(decision::kind) { return decision::kind::past; }

namespace {

// Keys. A rank that comes reads how far the log is, appends its arrival, and waits for each later decision until one is
// about it. The coordinator takes away what it has read. Each coordinator reads those of its own term.
std::string arrivals_key(std::int64_t term) { return fmt::format("arrivals/{}", term); }
// Then a membership::arrival; one without a number withdraws that of the same place.
constexpr std::string_view arrival_head = "arrival6 ";
constexpr std::string_view decision_head = "decision2 ";
constexpr const char* progress_key = "progress";
// Arrivals that follow it are in no world of this epoch or an earlier one.
struct progress {
  std::int64_t epoch = -1;
  std::int64_t term = 0;  // the epoch of the last come_again, plus one; 0: none
};
constexpr std::string_view world_keys = "world/", newcomers_keys = "newcomers/";
std::string world_key(std::int64_t epoch) { return fmt::format("{}{}", world_keys, epoch); }
// Numbers of newcomers while this epoch's world runs, one after the other.
std::string newcomers_key(std::int64_t epoch, std::uint64_t change) {
  return fmt::format("{}{}/{}", newcomers_keys, epoch, change);
}
constexpr const char* obstacle_key = "obstacle";
constexpr const char* runs_key = "runs";  // "yes" while members of a world live

// Ends when the store does: nothing else limits a wait that is no fault.
constexpr std::chrono::milliseconds while_served = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds time_to_answer = std::chrono::seconds(5);

std::string encode(const decision& made) { return std::string(decision_head) + base::to_bytes(made); }

// The number of ranks of its world.
int size_of(const decision& made) {
  int size = 0;
  for (const decision::seats& each : made.members) size += each.ranks;
  return size;
}

decision decode_decision(std::string_view text) {
  constexpr const char* a_decision = "a decision about a world";
  if (!text.starts_with(decision_head)) throw_malformed(a_decision);
  decision made = from_store<decision>(text.substr(decision_head.size()), a_decision);
  if (made.what == decision::kind::world) check_table(made.table, size_of(made));
  return made;
}

progress decode_progress(const std::string& text) {
  return text.empty() ? progress() : from_store<progress>(text, "how far the worlds are");
}

std::string encode(const membership::arrival& who) { return std::string(arrival_head) + base::to_bytes(who); }

}  // namespace

// ---- the coordinator ----

elastic_store::elastic_store(boost::asio::any_io_executor executor, std::unique_ptr<store> at,
                             int least_nodes, quorum needed,
                             std::function<void(const std::string& why)> failed)
    : store_(std::move(at)), members_(least_nodes, needed), failed_(std::move(failed)), changed_(executor) {}

task<> elastic_store::take_over(std::chrono::milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  const std::string before = co_await propose(*store_, progress_key, "", core::time_left(deadline));
  decision again;
  again.what = decision::kind::come_again;
  std::int64_t here = decode_progress(before).epoch + 1;
  for (;; ++here) {
    const store_exchange done =
        co_await store_->compare_exchange(world_key(here), "", encode(again), core::time_left(deadline));
    if (done.exchanged) break;
    const decision last = decode_decision(done.value);
    if (last.what == decision::kind::refusal) throw error(errc::join_failed, last.why);
  }
  term_ = here + 1;
  co_await store_->set(progress_key, base::to_bytes(progress{here, term_}), core::time_left(deadline));
  decision last = again;
  for (running_ = here; running_ > 0 && last.what == decision::kind::come_again;) {
    const std::string text = co_await store_->get(world_key(--running_), core::time_left(deadline));
    last = decode_decision(text);
  }
  if (last.what != decision::kind::world) running_ = -1;
  std::vector<membership::arrival> members;
  for (const decision::seats& each : last.members)
    for (int i = 0; i < each.ranks; ++i)
      members.push_back({.number = each.number + i, .start = each.start, .place = 0, .record = {}});
  members_.resume(here, members);
  table_ = std::move(last.table);
}

void elastic_store::serve() {
  tasks_.start(unless_it_fails(take_arrivals()));
  tasks_.start(unless_it_fails(answer_ranks()));
}

task<> elastic_store::unless_it_fails(task<> work) {
  std::string why;
  try {
    co_await std::move(work);
  } catch (const error& e) {
    why = e.what();
  }
  failed_(why);
}

task<> elastic_store::take_arrivals() {
  for (;;) {
    const std::string text = co_await store_->get(arrivals_key(term_), while_served);
    const store_exchange taken =
        co_await store_->compare_exchange(arrivals_key(term_), text, "", while_served);
    if (!taken.exchanged) continue;  // more have come
    take(text);
    settle();
  }
}

void elastic_store::take(std::string_view text) {
  for (std::size_t at; (at = text.find(arrival_head)) != text.npos;) {
    text.remove_prefix(at + arrival_head.size());
    try {
      base::field_reader reader(text, "");
      membership::arrival who;
      reader.field(who);
      text = reader.rest();
      if (who.number < 0)
        members_.withdraw(who.place);
      else
        members_.came(std::move(who));
    } catch (const error&) {
      // it learns from its own deadline; those that write properly are not disturbed
    }
  }
}

void elastic_store::settle() {
  if (minority_.empty()) minority_ = members_.minority();
  changed_.notify();
}

task<> elastic_store::answer_ranks() {
  for (;;) {
    co_await changed_.wait(core::time_point::max());
    if (minority_.empty()) {
      co_await admit();
    } else if (!refused_) {
      decision made;
      made.what = decision::kind::refusal;
      made.why = minority_;
      co_await decide(members_.epoch() + 1, encode(made));
      refused_ = true;
    }
    if (running_ >= 0 && members_.newcomers() != newcomers_) co_await tell_newcomers();
    co_await show(runs_key, members_.runs() ? "yes" : "", &runs_);
    co_await show(obstacle_key, members_.obstacle(), &obstacle_);
  }
}

task<> elastic_store::admit() {
  std::optional<membership::world> next = members_.decide();
  if (!next) co_return;
  const std::int64_t before = std::exchange(running_, next->epoch);
  told_ = 0;
  newcomers_ = 0;
  decision made;
  made.what = decision::kind::world;
  std::vector<core::endpoint_record> records;
  for (membership::arrival& each : next->members) {
    each.record.rank = static_cast<int>(records.size());
    each.record.arrival = each.place;
    const bool follows = !made.members.empty() && made.members.back().start == each.start &&
                         made.members.back().number + made.members.back().ranks == each.number;
    if (!follows) made.members.push_back({each.number, each.start, 0});
    ++made.members.back().ranks;
    records.push_back(std::move(each.record));
  }
  made.table = make_table(core::platform::real().random(), records, most_records_at_once);
  if (!made.table.is_complete())
    co_await publish_records(*store_, made.table, std::move(records), while_served);
  co_await decide(running_, encode(made));
  co_await store_->set(progress_key, base::to_bytes(progress{running_, term_}), while_served);
  // The members of the last one are in the new one, or dead.
  const peer_table last = std::exchange(table_, std::move(made.table));
  if (before < 0) co_return;
  co_await store_->set(world_key(before), encode(decision()), while_served);
  if (!last.is_complete()) co_await remove_records(*store_, last, while_served);
}

task<> elastic_store::decide(std::int64_t epoch, std::string made) {
  const store_exchange done =
      co_await store_->compare_exchange(world_key(epoch), "", std::move(made), while_served);
  if (!done.exchanged)
    throw error(errc::peer_failed, "another launcher coordinates the job, because this one was out of reach");
}

task<> elastic_store::tell_newcomers() {
  newcomers_ = members_.newcomers();
  for (bool told = false; !told;) {
    const store_exchange done = co_await store_->compare_exchange(newcomers_key(running_, told_++), "",
                                                                  std::to_string(newcomers_), while_served);
    told = done.exchanged;
  }
}

task<> elastic_store::show(const char* key, std::string value, std::string* shown) {
  if (*shown == value) co_return;
  *shown = value;
  co_await store_->set(key, std::move(value), while_served);
}

// ---- a rank ----

namespace {

// The store of node 0's launcher or that of the job in etcd, through the launcher of this node.
task<std::unique_ptr<store>> store_of_launchers(boost::asio::any_io_executor executor, job who,
                                                core::time_point deadline) {
  if (who.store_relay != 0) {
    job here = who;
    here.master_host = "127.0.0.1";
    here.master_port = who.store_relay;
    here.store_listens = true;
    auto found = co_await as_result(store_of_rank_0(executor, std::move(here), deadline));
    if (found) co_return std::move(found.value);
    // A container has a loopback of its own, and a launcher without node 0 does not listen.
  }
  if (who.etcd.empty()) co_return co_await store_of_rank_0(executor, who, deadline);
  std::unique_ptr<store> found =
      co_await etcd_store::connect(executor, who.etcd, core::time_left(deadline), who.tls_of_etcd);
  co_return std::move(found);
}

}  // namespace

newcomer_watch::newcomer_watch(job who, std::int64_t epoch) {
  boost::asio::post(context_, [this, who, epoch] { watching_.start(watch(who, epoch)); });
  const base::signals_blocked for_the_thread;
  thread_ = std::thread([this] { context_.run(); });
}

newcomer_watch::~newcomer_watch() {
  context_.stop();
  thread_.join();
}

// Ends with the store: nobody else admits ranks.
task<> newcomer_watch::watch(job who, std::int64_t epoch) {
  const std::unique_ptr<store> through =
      co_await store_of_launchers(context_.get_executor(), who, core::deadline_after(who.timeout));
  co_await follow_newcomers(*through, epoch, count_);
}

task<> follow_newcomers(store& through, std::int64_t epoch, std::atomic<int>& count) {
  for (std::uint64_t change = 0;; ++change) {
    const std::string text = co_await through.get(newcomers_key(epoch, change), while_served);
    count.store(base::to_number<int>(text).value_or(0), std::memory_order_relaxed);
  }
}

namespace {

// The rank of process `number` in the world; -1: none.
int rank_of(const decision& made, int number) {
  int rank = 0;
  for (const decision::seats& each : made.members) {
    if (number >= each.number && number - each.number < each.ranks) return rank + number - each.number;
    rank += each.ranks;
  }
  return -1;
}

// The world in which a decision puts the process that has arrived at this place; nullopt: in none.
task<std::optional<core::world_info>> world_in(store& through, decision made, std::uint64_t place,
                                               std::int64_t epoch, job who, std::chrono::milliseconds limit) {
  if (made.what == decision::kind::refusal) throw error(errc::join_failed, made.why);
  who.rank = rank_of(made, who.rank);
  if (who.rank < 0) co_return std::nullopt;
  const int size = size_of(made);
  core::world_info info = world_of(who, size, std::move(made.table));
  info.epoch = static_cast<std::uint32_t>(epoch);
  if (info.peers.size() == 0) {
    auto near = co_await as_result(read_records(through, info.id, info.hosts.host_of(who.rank), limit));
    if (!near) {
      const std::string now = co_await propose(through, world_key(epoch), "", limit);
      if (decode_decision(now).what == decision::kind::past) co_return std::nullopt;  // since it was read
      throw base::error_of(near);
    }
    for (core::endpoint_record& each : near.value) info.peers.learn(std::move(each));
  }
  // Else it is of another process with this number, or of an arrival that was taken back.
  const core::endpoint_record* const mine = info.peers.find(who.rank);
  if (mine == nullptr || mine->arrival != place) co_return std::nullopt;
  co_return std::move(info);
}

task<> withdraw(store& through, std::int64_t term, std::uint64_t place) {
  const membership::arrival none{.number = -1, .start = 0, .place = place, .record = {}};
  co_await through.append(arrivals_key(term), encode(none), time_to_answer);
}

}  // namespace

bool serves_others(const store_request& what) {
  const std::string_view key = what.key;
  if (what.operation == store_operation::get)
    return key.starts_with(world_keys) || key.starts_with(newcomers_keys);
  return what.operation == store_operation::compare_exchange && what.expected.empty() && what.value.empty() &&
         key.starts_with(records_keys);
}

task<core::world_info> meet_through(store& through, job who, core::endpoint_record mine, core::platform& time,
                                    core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  const std::uint64_t place = time.random();
  const auto left = [&time, deadline] { return core::time_left(deadline, time.now()); };
  const std::string before = co_await propose(through, progress_key, "", left());
  progress at = decode_progress(before);
  const std::string arrival = encode(membership::arrival{who.rank, who.restarts, place, std::move(mine)});
  co_await through.append(arrivals_key(at.term), arrival, left());
  for (;;) {
    // A newcomer has as much time again as long as a world runs, for it comes in when that one's members like.
    const std::chrono::milliseconds limit = who.newcomer ? std::chrono::milliseconds(who.timeout) : left();
    const result<std::string> said = co_await as_result(through.get(world_key(at.epoch + 1), limit));
    if (said) {
      decision made = decode_decision(said.value);
      ++at.epoch;
      if (made.what == decision::kind::come_again) {
        at.term = at.epoch + 1;
        co_await through.append(arrivals_key(at.term), arrival, left());
        continue;
      }
      std::optional<core::world_info> mine_in =
          co_await world_in(through, std::move(made), place, at.epoch, who, limit);
      if (mine_in) co_return std::move(*mine_in);
      continue;
    }
    const error trouble = base::error_of(said);
    if (self->is_stopped()) co_await core::outside_scope(withdraw(through, at.term, place));
    if (self->is_stopped() || trouble.code() != errc::timed_out) throw trouble;
    if (!who.newcomer) break;
    const std::string runs = co_await propose(through, runs_key, "", time_to_answer);
    if (runs.empty()) break;
  }
  const std::string why = co_await propose(through, obstacle_key, "", time_to_answer);
  co_await withdraw(through, at.term, place);
  const std::string late = co_await propose(through, world_key(at.epoch + 1), "", time_to_answer);
  if (!late.empty()) {
    std::optional<core::world_info> mine_in =
        co_await world_in(through, decode_decision(late), place, at.epoch + 1, who, time_to_answer);
    if (mine_in) co_return std::move(*mine_in);
  }
  base::throw_error(errc::join_failed,
                    "no world within {}: {} (allow more time by TUTTI_TIMEOUT, in seconds)",
                    base::duration_text(who.timeout), why);
}

task<core::world_info> meet_in_elastic_store(boost::asio::any_io_executor executor, job who,
                                             core::endpoint_record mine, core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  try {
    const std::unique_ptr<store> through = co_await store_of_launchers(executor, who, deadline);
    core::world_info info = co_await meet_through(*through, who, mine, core::platform::real(), deadline);
    ask_later(
        info, executor,
        [executor, who](core::time_point until) { return store_of_launchers(executor, who, until); }, "");
    co_return std::move(info);
  } catch (const error& e) {
    if (self->is_stopped() || (e.code() != errc::peer_failed && e.code() != errc::timed_out)) throw;
    if (!who.etcd.empty())
      base::throw_error(errc::join_failed, "rank {} cannot join: {}", who.rank, e.what());
    base::throw_error(errc::join_failed,
                      "rank {} cannot join: tutti-run of node 0, which serves the store, has gone or does "
                      "not answer: {}",
                      who.rank, e.what());
  }
}

}  // namespace tutti::bootstrap
