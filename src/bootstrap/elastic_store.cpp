// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/elastic_store.hpp"

#include "base/fields.hpp"
#include "base/signals_blocked.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/store_contents.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <tutti/as_result.hpp>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

// Keys. A rank that comes appends its arrival, under a place that it draws, and waits for the answer of that
// place: the epoch, the size of its world and its rank there. The launcher takes away what it has read.
constexpr const char* arrivals_key = "arrivals";
constexpr std::string_view arrival_head = "arrival4 ";  // then a membership::arrival
std::string answer_key(std::uint64_t place) { return fmt::format("answer/{:016x}", place); }
std::string table_key(std::int64_t epoch) { return fmt::format("table/{}", epoch); }
// Numbers of newcomers while this epoch's world runs, one after the other.
std::string newcomers_key(std::int64_t epoch, std::uint64_t change) {
  return fmt::format("newcomers/{}/{}", epoch, change);
}
constexpr const char* obstacle_key = "obstacle";
constexpr const char* runs_key = "runs";  // "yes" while members of a world live
constexpr const char* withdrawn = "withdrawn";

// Ends when the server does: nothing else limits a wait that is no fault.
constexpr std::chrono::milliseconds while_served = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds time_to_answer = std::chrono::seconds(5);

struct answer {
  std::int64_t epoch = 0;
  int size = 0;
  int rank = 0;
  std::string refusal = {};  // why there is no such world, if it is not empty
};

}  // namespace

// ---- the launcher ----

elastic_store::elastic_store(std::unique_ptr<memory_store> served, int least_nodes, quorum needed)
    : store_(std::move(served)), members_(least_nodes, needed) {
  serving_.start(serve());
}

void elastic_store::perform(store_operation what, std::string key, std::string value) {
  store_->contents_->carry_out({.operation = what, .key = std::move(key), .value = std::move(value)},
                               store_->name());
}

std::optional<std::string> elastic_store::find(const std::string& key) const {
  return store_->contents_->find(key);
}

task<> elastic_store::serve() {
  for (;;) {
    co_await store_->wait(arrivals_key, while_served);
    const std::string text = find(arrivals_key).value_or("");
    perform(store_operation::erase, arrivals_key);
    take(text);
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
      members_.came(std::move(who));
    } catch (const error&) {
      // it learns from its own deadline; those that write properly are not disturbed
    }
  }
  settle();
}

void elastic_store::settle() {
  if (minority_.empty()) minority_ = members_.minority();
  if (!minority_.empty()) {
    members_.withdraw_if([this](std::uint64_t place) {
      perform(store_operation::set, answer_key(place), base::to_bytes(answer{.refusal = minority_}));
      return true;
    });
  } else if (members_.obstacle().empty()) {
    members_.withdraw_if([this](std::uint64_t place) { return find(answer_key(place)) == withdrawn; });
    if (std::optional<membership::world> next = members_.decide()) publish(std::move(*next));
  }
  if (const int now = members_.newcomers(); now != newcomers_ && members_.epoch() >= 0) {
    newcomers_ = now;
    perform(store_operation::set, newcomers_key(members_.epoch(), told_++), std::to_string(now));
  }
  show(runs_key, members_.runs() ? "yes" : "");
  show(obstacle_key, members_.obstacle());
}

void elastic_store::show(const char* key, const std::string& value) {
  if (find(key).value_or("") != value) perform(store_operation::set, key, value);
}

void elastic_store::publish(membership::world next) {
  peer_table table;
  table.id = core::platform::real().random();
  for (membership::arrival& a : next.members) {
    table.records.push_back(std::move(a.record));
    table.records.back().rank = static_cast<int>(table.records.size()) - 1;
  }
  perform(store_operation::set, table_key(next.epoch), encode_table(table));
  // The members of the last one are in the new one, or dead.
  perform(store_operation::erase, table_key(next.epoch - 1));
  for (const std::uint64_t place : answered_) perform(store_operation::erase, answer_key(place));
  answered_.clear();
  for (std::size_t rank = 0; rank < next.members.size(); ++rank) {
    answered_.push_back(next.members[rank].place);
    const answer its{
        .epoch = next.epoch, .size = static_cast<int>(next.members.size()), .rank = static_cast<int>(rank)};
    perform(store_operation::set, answer_key(answered_.back()), base::to_bytes(its));
  }
  told_ = 0;
  newcomers_ = 0;
}

// ---- a rank ----

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
      co_await store_of_rank_0(context_.get_executor(), who, core::deadline_after(who.timeout));
  co_await follow_newcomers(*through, epoch, count_);
}

task<> follow_newcomers(store& through, std::int64_t epoch, std::atomic<int>& count) {
  for (std::uint64_t change = 0;; ++change) {
    const std::string text = co_await through.get(newcomers_key(epoch, change), while_served);
    count.store(base::to_number<int>(text).value_or(0), std::memory_order_relaxed);
  }
}

namespace {

task<> withdraw(store& through, std::uint64_t place) {
  co_await propose(through, answer_key(place), withdrawn, time_to_answer);
}

// A newcomer has as much time again as long as a world runs, for it comes in when that one's members like.
task<std::string> await_answer(store& through, std::uint64_t place, const job& who,
                               std::chrono::milliseconds limit) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  for (bool patient = true; patient;) {
    result<std::string> said = co_await as_result(through.get(answer_key(place), limit));
    if (said) co_return std::move(said.value);
    const error trouble = base::error_of(said);
    if (self->is_stopped()) co_await core::outside_scope(withdraw(through, place));
    if (self->is_stopped() || trouble.code() != errc::timed_out) throw trouble;
    if (!who.newcomer) break;
    const std::string runs = co_await propose(through, runs_key, "", time_to_answer);
    patient = !runs.empty();
  }
  std::string given = co_await propose(through, answer_key(place), withdrawn, time_to_answer);
  if (given != withdrawn) co_return std::move(given);
  const std::string why = co_await propose(through, obstacle_key, "", time_to_answer);
  base::throw_error(errc::join_failed,
                    "no world within {}: {} (allow more time by TUTTI_TIMEOUT, in seconds)",
                    base::duration_text(who.timeout), why);
}

}  // namespace

task<core::world_info> meet_through(store& through, job who, core::endpoint_record mine, core::platform& time,
                                    core::time_point deadline) {
  const std::uint64_t place = time.random();
  const auto left = [&time, deadline] { return core::time_left(deadline, time.now()); };
  const membership::arrival me{who.rank, who.restarts, place, std::move(mine)};
  std::string arrival = std::string(arrival_head) + base::to_bytes(me);
  co_await through.append(arrivals_key, std::move(arrival), left());
  const std::chrono::milliseconds limit = who.newcomer ? std::chrono::milliseconds(who.timeout) : left();
  const std::string said = co_await await_answer(through, place, who, limit);
  const auto mine_in = from_store<answer>(said, "an answer");
  if (!mine_in.refusal.empty()) throw error(errc::join_failed, mine_in.refusal);
  if (mine_in.rank < 0 || mine_in.rank >= mine_in.size) throw_malformed("an answer");
  const std::string table = co_await through.get(table_key(mine_in.epoch), time_to_answer);
  who.rank = mine_in.rank;
  core::world_info info = world_of(who, decode_table(table, mine_in.size));
  info.epoch = static_cast<std::uint32_t>(mine_in.epoch);
  co_return std::move(info);
}

task<core::world_info> meet_in_elastic_store(boost::asio::any_io_executor executor, job who,
                                             core::endpoint_record mine, core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  try {
    const std::unique_ptr<store> through = co_await store_of_rank_0(executor, who, deadline);
    co_return co_await meet_through(*through, who, mine, core::platform::real(), deadline);
  } catch (const error& e) {
    if (self->is_stopped() || (e.code() != errc::peer_failed && e.code() != errc::timed_out)) throw;
    base::throw_error(errc::join_failed,
                      "rank {} cannot join: tutti-run of node 0, which serves the store, has gone or does "
                      "not answer: {}",
                      who.rank, e.what());
  }
}

}  // namespace tutti::bootstrap
