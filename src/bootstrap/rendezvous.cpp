// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include "base/hmac.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/address.hpp"
#include "core/outside_scope.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::bootstrap {
namespace {

// Keys. Every value has one writer, or is written by compare_exchange, append or add.
constexpr const char* size_key = "size";        // of the world, and which rank said so first
constexpr const char* records_key = "records";  // of all ranks that have come, in the order of coming
constexpr const char* came_key = "came";        // their number
constexpr const char* verdict_key = "world";    // how it ended: the table, or why there is none
constexpr const char* secret_key = "secret";
std::string rank_key(int rank) { return fmt::format("rank/{}", rank); }

constexpr std::string_view failed_head = "failed1 ";
constexpr std::string_view superseded = "superseded1";
constexpr std::size_t secret_bytes = 32;
// For the questions that follow a timeout.
constexpr auto patience = std::chrono::seconds(5);

struct claimant {
  int number = 0;  // the claim: a world size or a rank
  int rank = 0;
  std::string host;
  std::string pid;
  std::string job;   // empty: unknown
  std::string ways;  // checksums and TLS, as one word
  std::string id;    // of the claim
};

// Settings that all ranks must share, as a word of a claim.
std::string ways_of(const job& who) {
  return fmt::format("{}{}", who.checksums ? "+checksums" : "-checksums", who.tls ? "+tls" : "-tls");
}

// In containers, processes of one host may share name and pid. A forked child shares the random part.
std::string process_id() {
  static const std::string random = base::random_hex(8);
  return fmt::format("{}.{}.", random, ::getpid());
}
// Different for every claim.
std::string claim_id() {
  static std::atomic<unsigned> claims{0};
  return process_id() + std::to_string(++claims);
}

std::string encode_claim(int number, const core::endpoint_record& mine, const job& who) {
  return fmt::format("{} {} {} {} {} {} {}", number, mine.rank, encode_word(mine.host), mine.pid,
                     encode_word(who.job_id), encode_word(ways_of(who)), claim_id());
}

claimant decode_claim(const std::string& text) {
  word_reader words(text, "a claim");
  claimant c;
  c.number = words.number<int>();
  c.rank = words.number<int>();
  c.host = words.word();
  c.pid = words.next();
  c.job = words.word();
  c.ways = words.word();
  c.id = words.next();
  words.expect_end();
  return c;
}

// "ranks 2 and 5", "rank 3", "ranks 1, 2, 3 and 60 others".
std::string list_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most_named = 16;
  const std::size_t named = ranks.size() <= most_named ? ranks.size() : most_named;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (named < ranks.size()) text += fmt::format(" and {} others", ranks.size() - named);
  return text;
}

std::string explain_missing(const std::vector<core::endpoint_record>& came, const job& who) {
  std::vector<bool> here(static_cast<std::size_t>(who.world_size));
  for (const core::endpoint_record& record : came)
    if (record.rank < who.world_size) here[static_cast<std::size_t>(record.rank)] = true;
  std::vector<int> missing;
  for (int rank = 0; rank < who.world_size; ++rank)
    if (!here[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  const std::string time = base::duration_text(who.timeout);
  if (missing.empty())
    return fmt::format(
        "all {} ranks came, but the last one ended before the others knew, within {}: look at the ranks' "
        "output",
        who.world_size, time);
  return fmt::format(
      "{} of {} {} not joined within {}: start {}, look at {} output, or allow more time (TUTTI_TIMEOUT, in "
      "seconds)",
      list_ranks(missing), who.world_size, missing.size() == 1 ? "has" : "have", time,
      missing.size() == 1 ? "it" : "them", missing.size() == 1 ? "its" : "their");
}

// One rank's part in the rendezvous. Lives in meet()'s frame.
class participant {
 public:
  participant(store& through, const job& who, const core::endpoint_record& mine,
              core::time_point deadline) noexcept
      : store_(through), who_(who), mine_(mine), deadline_(deadline) {}

  // nullopt: superseded.
  task<std::optional<peer_table>> meet() {
    co_await claim_size();
    co_await claim_rank();
    co_await store_.append(records_key, encode_endpoint_record(mine_), left());
    const std::int64_t came = co_await store_.add(came_key, 1, left());
    std::string verdict;
    if (came == who_.world_size) {
      verdict = co_await publish_table();
    } else {
      verdict = co_await await_verdict();
    }
    if (verdict.starts_with(failed_head)) refuse("{}", verdict.substr(failed_head.size()));
    if (verdict == superseded) co_return std::nullopt;
    co_return decode_table(verdict, who_.world_size);
  }

 private:
  std::chrono::milliseconds left() const noexcept { return core::time_left(deadline_); }
  template <class... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    base::throw_error(errc::join_failed, "rank {} cannot join: {}", who_.rank,
                      fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  task<> claim_size() {
    const store_exchange first =
        co_await store_.compare_exchange(size_key, "", encode_claim(who_.world_size, mine_, who_), left());
    if (first.exchanged) co_return;
    const claimant other = decode_claim(first.value);
    if (!other.job.empty() && !who_.job_id.empty() && other.job != who_.job_id)
      refuse(
          "this process (host {}, pid {}) belongs to job '{}', but the ranks that meet here "
          "(rank {}, host {}, pid {}) belong to job '{}': end what is left of an earlier run, or "
          "meet elsewhere (another MASTER_PORT, or another address in init_method); when they "
          "are one job, set TUTTI_JOB_ID to the same on all ranks, or unset it",
          mine_.host, mine_.pid, who_.job_id, other.rank, other.host, other.pid, other.job);
    const std::string why = disagreement(other);
    if (why.empty()) co_return;
    // The others would wait in vain. A world that already exists is not disturbed.
    co_await propose(store_, verdict_key, std::string(failed_head) + why, left());
    refuse("{}", why);
  }

  // Empty: there is none.
  std::string disagreement(const claimant& other) const {
    if (other.ways != ways_of(who_))
      return fmt::format(
          "rank {} (host {}, pid {}) has {}, rank {} (host {}, pid {}) has {}: set TUTTI_CHECKSUMS and "
          "TUTTI_TLS, or init_options::checksums and tls, to the same on all ranks",
          other.rank, other.host, other.pid, other.ways, mine_.rank, mine_.host, mine_.pid, ways_of(who_));
    if (other.number == who_.world_size) return {};
    return fmt::format(
        "rank {} (host {}, pid {}) was told that there are {} ranks, rank {} (host {}, pid {}) that there "
        "are {}: set WORLD_SIZE to the same on all ranks, or start the program with tutti-run",
        other.rank, other.host, other.pid, other.number, mine_.rank, mine_.host, mine_.pid, who_.world_size);
  }

  task<> claim_rank() {
    const store_exchange first = co_await store_.compare_exchange(
        rank_key(who_.rank), "", encode_claim(who_.rank, mine_, who_), left());
    if (first.exchanged) co_return;
    const claimant other = decode_claim(first.value);
    if (other.id.starts_with(process_id()))
      refuse(
          "this process is already in that world: leave it first, or form another one with init(rt, "
          "options, store)");
    refuse(
        "there are two processes with rank {}: pid {} on host {}, which came first, and this one, "
        "pid {} on host {}; give each process its own RANK (tutti-run does), and end what is left "
        "of an earlier run",
        who_.rank, other.pid, other.host, mine_.pid, mine_.host);
  }

  // The last rank to come knows that all endpoint records are there.
  task<std::string> publish_table() {
    const std::string lines = co_await store_.get(records_key, left());
    peer_table table{random_world_id(), decode_endpoint_records(lines)};
    std::ranges::sort(table.records, {}, &core::endpoint_record::rank);
    // Unless a rank has given up meanwhile and said so.
    std::string verdict = co_await propose(store_, verdict_key, encode_table(table), left());
    co_return std::move(verdict);
  }

  task<std::string> await_verdict() {
    const detail::scoped_promise* const self = co_await detail::own_promise{};
    std::string verdict;
    bool in_time = true;
    try {
      verdict = co_await store_.get(verdict_key, left());
    } catch (const error& e) {
      if (e.code() != errc::timed_out || self->is_stopped()) throw;
      in_time = false;
    }
    if (in_time) co_return verdict;
    verdict = co_await give_up();
    co_return verdict;
  }

  // The first rank whose time is over names the missing ranks, and ends the attempt for all; the others read
  // that.
  task<std::string> give_up() {
    std::string why;
    std::string trouble;
    try {
      const std::string lines = co_await store_.get(records_key, patience);
      why = explain_missing(decode_endpoint_records(lines), who_);
      std::string verdict = co_await propose(store_, verdict_key, std::string(failed_head) + why, patience);
      co_return std::move(verdict);
    } catch (const error& e) {
      trouble = e.what();
    }
    if (!why.empty()) refuse("{}", why);
    refuse("not all {} ranks have come within {}, and which are missing cannot be told: {}", who_.world_size,
           base::duration_text(who_.timeout), trouble);
  }

  store& store_;
  const job& who_;
  const core::endpoint_record& mine_;
  const core::time_point deadline_;
};

}  // namespace

core::world_info world_of(const job& who, peer_table table) {
  core::world_info info;
  info.id = table.id;
  info.rank = who.rank;
  info.size = static_cast<int>(table.records.size());
  info.secret = who.secret;
  info.checksums = who.checksums;
  info.tls = who.tls;
  info.tcp_connections = who.tcp_connections;
  info.timeout = who.timeout;
  info.silence_limit = who.silence_limit;
  info.suspect_grace = who.suspect_grace;
  info.peers = std::move(table.records);
  return info;
}

task<> await_master_name(boost::asio::any_io_executor executor, job who, core::time_point deadline) {
  if (!who.master_host.empty()) co_await resolve_host(executor, who.master_host, who.master_port, deadline);
}

task<std::unique_ptr<store>> store_of_rank_0(boost::asio::any_io_executor executor, job who,
                                             core::time_point deadline) {
  const auto connect = who.store_listens ? &tcp_store::connect_to_listening : &tcp_store::connect;
  std::unique_ptr<store> found = co_await connect(executor, who.master_host, who.master_port, who.secret,
                                                  who.rank, core::time_left(deadline), who.tls);
  co_return std::move(found);
}

task<std::string> agree_on_secret(store& through, std::string own, core::time_point deadline) {
  if (own.empty())
    own = co_await propose(through, secret_key, base::random_hex(secret_bytes), core::time_left(deadline));
  co_return std::move(own);
}

task<std::optional<core::world_info>> try_meet(store& through, job who, core::endpoint_record mine,
                                               core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  participant me(through, who, mine, deadline);
  std::optional<peer_table> table;
  std::optional<error> trouble;
  try {
    table = co_await me.meet();
  } catch (const error& e) {
    // Explains a failure of the store, or the end of this rank's scope, to a user who wants to join a world.
    const bool of_store = e.code() == errc::peer_failed || e.code() == errc::timed_out;
    if (!of_store && !self->is_stopped()) throw;
    trouble.emplace(self->is_stopped() ? self->scope->why() : errc::join_failed,
                    fmt::format("rank {} cannot join: {}", who.rank, e.what()));
  }
  if (trouble) throw *trouble;
  if (!table) co_return std::nullopt;
  co_return std::optional<core::world_info>(world_of(who, std::move(*table)));
}

task<std::string> propose(store& at, std::string key, std::string value, std::chrono::milliseconds timeout) {
  store_exchange now = co_await at.compare_exchange(std::move(key), std::string(), std::move(value), timeout);
  co_return std::move(now.value);
}

task<core::world_info> meet(store& through, job who, core::endpoint_record mine, core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  std::optional<core::world_info> info;
  std::exception_ptr failure;
  try {
    info = co_await try_meet(through, who, std::move(mine), deadline);
  } catch (...) {
    failure = std::current_exception();
  }
  // The others cannot do without this rank, whose claim stays in the store.
  if (failure && self->is_stopped())
    co_await core::outside_scope(
        call_off(through, fmt::format("rank {} has given up: {}", who.rank, self->scope->text())));
  if (failure) std::rethrow_exception(failure);
  if (!info)
    base::throw_error(errc::join_failed,
                      "rank {} cannot join: the store belongs to another attempt; start all ranks anew",
                      who.rank);
  co_return std::move(*info);
}

task<bool> is_over(store& through, core::time_point deadline) {
  const std::size_t verdicts = co_await through.count(verdict_key, core::time_left(deadline));
  co_return verdicts > 0;
}

task<bool> has_come(store& through, int rank, core::time_point deadline) {
  const std::string claim = co_await propose(through, rank_key(rank), "", core::time_left(deadline));
  co_return !claim.empty();
}

task<> call_off(store& through, std::string why) {
  co_await propose(through, verdict_key, std::string(failed_head) + why, patience);
}

task<> supersede(store& through, core::time_point deadline) {
  co_await propose(through, verdict_key, std::string(superseded), core::time_left(deadline));
}

}  // namespace tutti::bootstrap
