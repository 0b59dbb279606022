// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous.hpp"

#include "base/fields.hpp"
#include "base/hmac.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tutti/as_result.hpp>
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

// What a rank says of the world's size, or of its rank, and who says so.
struct claim {
  int number = 0;
  int rank = 0;
  std::string host;
  std::int64_t pid = 0;
  std::string job;   // empty: unknown
  std::string ways;  // checksums and TLS, as one word
  std::string process;
};

// Settings that all ranks must share, as a word of a claim.
std::string ways_of(const job& who) {
  return fmt::format("{}{}", who.checksums ? "+checksums" : "-checksums", who.tls ? "+tls" : "-tls");
}

// Claims of one process are alike: a store that tells an exchange by comparing must not see two of them.
// In containers, processes of one host may share name and pid. A forked child shares the random part.
std::string process_id() {
  static const std::string random = base::random_hex(8);
  return fmt::format("{}.{}", random, ::getpid());
}

std::string explain_missing(const std::vector<core::endpoint_record>& came, const job& who) {
  std::set<int> here;
  for (const core::endpoint_record& record : came) here.insert(record.rank);
  std::vector<int> missing;
  for (int rank = 0; rank < who.world_size; ++rank)
    if (!here.contains(rank)) missing.push_back(rank);
  const std::string time = base::duration_text(who.timeout);
  if (missing.empty())
    return fmt::format(
        "all {} ranks came, but the last one ended before the others knew, within {}: look at the ranks' "
        "output",
        who.world_size, time);
  return fmt::format(
      "{} of {} {} not joined within {}: start {}, look at {} output, or allow more time (TUTTI_TIMEOUT, in "
      "seconds)",
      base::ranks_text(missing), who.world_size, missing.size() == 1 ? "has" : "have", time,
      missing.size() == 1 ? "it" : "them", missing.size() == 1 ? "its" : "their");
}

// One rank's part in the rendezvous. Lives in meet()'s frame.
class participant {
 public:
  participant(store& through, const job& who, const core::endpoint_record& mine,
              core::time_point deadline) noexcept
      : store_(through), who_(who), mine_(mine), deadline_(deadline) {}

  // nullopt: superseded.
  task<std::optional<core::world_info>> meet() {
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
    core::world_info info = world_of(who_, who_.world_size, decode_table(verdict, who_.world_size));
    if (info.peers.size() == 0) {
      std::vector<core::endpoint_record> near =
          co_await read_records(store_, info.id, info.hosts.host_of(info.rank), left());
      for (core::endpoint_record& each : near) info.peers.learn(std::move(each));
    }
    co_return std::move(info);
  }

 private:
  std::chrono::milliseconds left() const noexcept { return core::time_left(deadline_); }
  template <class... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    base::throw_error(errc::join_failed, "rank {} cannot join: {}", who_.rank,
                      fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  std::string claim_of(int number) const {
    return base::to_bytes(
        claim{number, mine_.rank, mine_.host, mine_.pid, who_.job_id, ways_of(who_), process_id()});
  }

  task<> claim_size() {
    const store_exchange first =
        co_await store_.compare_exchange(size_key, "", claim_of(who_.world_size), left());
    if (first.exchanged) co_return;
    const auto other = from_store<claim>(first.value, "a claim");
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
  std::string disagreement(const claim& other) const {
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
    const store_exchange first =
        co_await store_.compare_exchange(rank_key(who_.rank), "", claim_of(who_.rank), left());
    if (first.exchanged) co_return;
    const auto other = from_store<claim>(first.value, "a claim");
    if (other.process == process_id())
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
    const std::string text = co_await store_.get(records_key, left());
    std::vector<core::endpoint_record> records = decode_endpoint_records(text);
    std::ranges::sort(records, {}, &core::endpoint_record::rank);
    const peer_table table = make_table(core::platform::real().random(), records, who_.records_at_once);
    if (!table.is_complete()) co_await publish_records(store_, table, std::move(records), left());
    // Unless a rank has given up meanwhile and said so.
    co_return co_await propose(store_, verdict_key, encode_table(table), left());
  }

  task<std::string> await_verdict() {
    const detail::scoped_promise* const self = co_await detail::own_promise{};
    try {
      co_return co_await store_.get(verdict_key, left());
    } catch (const error& e) {
      if (e.code() != errc::timed_out || self->is_stopped()) throw;
    }
    co_return co_await give_up();
  }

  // The first rank whose time is over names the missing ranks, and ends the attempt for all; others read that.
  task<std::string> give_up() {
    std::string why;
    try {
      const std::string records = co_await store_.get(records_key, patience);
      why = explain_missing(decode_endpoint_records(records), who_);
      co_return co_await propose(store_, verdict_key, std::string(failed_head) + why, patience);
    } catch (const error& e) {
      if (!why.empty()) refuse("{}", why);
      refuse("not all {} ranks have come within {}, and which are missing cannot be told: {}",
             who_.world_size, base::duration_text(who_.timeout), e.what());
    }
  }

  store& store_;
  const job& who_;
  const core::endpoint_record& mine_;
  const core::time_point deadline_;
};

// Ends an attempt that has not ended.
task<> end_attempt(store& through, std::string verdict, std::chrono::milliseconds limit) {
  co_await propose(through, verdict_key, std::move(verdict), limit);
}

// One attempt to meet. Returns nullopt if another attempt has superseded it. A rank whose scope is stopped
// leaves its claim in the store: it ends the attempt for the others, which fail, or go on to the next attempt
// if there is one.
task<std::optional<core::world_info>> try_meet(store& through, job who, core::endpoint_record mine,
                                               bool next_follows, core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  participant me(through, who, mine, deadline);
  std::optional<error> failed;  // all that a program's store throws besides goes on as it is
  try {
    co_return co_await me.meet();
  } catch (const error& e) {
    failed = e;
  }
  const bool of_store = failed->code() == errc::peer_failed || failed->code() == errc::timed_out;
  if (!of_store && !self->is_stopped()) throw error(*failed);
  // Explains a failure of the store, or the end of this rank's scope, to a user who wants to join a world.
  const error trouble(self->is_stopped() ? self->scope->why() : errc::join_failed,
                      fmt::format("rank {} cannot join: {}", who.rank, failed->what()));
  if (self->is_stopped()) {
    std::string verdict(superseded);
    if (!next_follows)
      verdict = fmt::format("{}rank {} has given up: {}", failed_head, who.rank, self->scope->text());
    co_await core::outside_scope(end_attempt(through, std::move(verdict), patience));
  }
  throw trouble;
}

// ---- epochs ----

// The number of the newest epoch. The keys of each are under "epoch/<number>".
constexpr const char* newest_key = "epoch";

std::int64_t epoch_in(const std::string& text) {
  const auto number = base::to_number<std::int64_t>(text);
  if (!number) throw_malformed("an epoch");
  return *number;
}

// Returns the newest epoch, which becomes `least` if it was an earlier one.
task<std::int64_t> newest_epoch(store& through, std::int64_t least, core::time_point deadline) {
  std::string held;
  for (;;) {
    const store_exchange raised =
        co_await through.compare_exchange(newest_key, held, std::to_string(least), core::time_left(deadline));
    if (raised.exchanged) break;
    held = raised.value;
    const std::int64_t newest = epoch_in(held);
    if (newest >= least) co_return newest;
  }
  if (!held.empty()) {
    prefix_store earlier(through, prefix_of_epoch(epoch_in(held)));
    co_await end_attempt(earlier, std::string(superseded), core::time_left(deadline));
  }
  co_return least;
}

}  // namespace

core::world_info world_of(const job& who, int size, peer_table table) {
  core::world_info info{who,
                        table.id,
                        who.rank,
                        size,
                        0,
                        core::host_map(std::move(table.hosts), size),
                        core::peer_records(std::move(table.kinds), table.kind_of)};
  for (core::endpoint_record& each : table.records) info.peers.learn(std::move(each));
  return info;
}

void ask_later(core::world_info& info, boost::asio::any_io_executor executor, stored_records::opener open,
               std::string prefix, std::unique_ptr<store> at) {
  if (std::cmp_equal(info.peers.size(), info.size)) return;
  info.peers.set_source(std::make_shared<stored_records>(executor, info.id, info.hosts, std::move(prefix),
                                                         std::move(open), std::move(at)));
}

stored_records::opener opener_of_rank_0(boost::asio::any_io_executor executor, job who,
                                        std::weak_ptr<tcp_store_server> server) {
  who.store_listens = true;  // since there is a world
  return [executor, who, server](core::time_point deadline) {
    return store_of_rank_0(executor, who, deadline, server.lock());
  };
}

task<std::unique_ptr<store>> store_of_rank_0(boost::asio::any_io_executor executor, job who,
                                             core::time_point deadline,
                                             std::shared_ptr<tcp_store_server> server) {
  if (server != nullptr) co_return server->local();
  const auto connect = who.store_listens ? &tcp_store::connect_to_listening : &tcp_store::connect;
  std::unique_ptr<store> found = co_await connect(executor, who.master_host, who.master_port, who.secret,
                                                  who.rank, core::time_left(deadline), who.tls);
  co_return std::move(found);
}

task<> end_meeting(store& through, std::string why) {
  return end_attempt(through, std::string(failed_head) + std::move(why), patience);
}

task<std::string> why_ended(store& through) {
  const std::string verdict = co_await propose(through, verdict_key, "", patience);
  co_return verdict.starts_with(failed_head) ? verdict.substr(failed_head.size()) : std::string();
}

task<std::string> agree_on_secret(store& through, std::string own, core::time_point deadline) {
  if (own.empty())
    own = co_await propose(through, secret_key, base::random_hex(secret_bytes), core::time_left(deadline));
  co_return std::move(own);
}

task<std::string> propose(store& at, std::string key, std::string value, std::chrono::milliseconds timeout) {
  store_exchange now = co_await at.compare_exchange(std::move(key), std::string(), std::move(value), timeout);
  co_return std::move(now.value);
}

task<core::world_info> meet(store& through, job who, core::endpoint_record mine, core::time_point deadline) {
  std::optional<core::world_info> info = co_await try_meet(through, who, std::move(mine), false, deadline);
  if (!info)
    base::throw_error(errc::join_failed,
                      "rank {} cannot join: the store belongs to another attempt; start all ranks anew",
                      who.rank);
  co_return std::move(*info);
}

task<> call_off(store& through, std::string why) {
  return end_attempt(through, std::string(failed_head) + why, patience);
}

std::string prefix_of_epoch(std::int64_t epoch) { return fmt::format("epoch/{}", epoch); }

task<bool> is_first(store& epoch, int rank, core::time_point deadline) {
  const std::string before = co_await propose(epoch, rank_key(rank), "", core::time_left(deadline));
  co_return before.empty();
}

task<core::world_info> meet_at(store& through, job who, core::endpoint_record mine, std::int64_t* least,
                               epoch_entry enter, core::time_point deadline) {
  for (;; ++*least) {
    const std::int64_t epoch = co_await newest_epoch(through, *least, deadline);
    *least = epoch;
    prefix_store keys(through, prefix_of_epoch(epoch));
    const std::size_t verdicts = co_await keys.count(verdict_key, core::time_left(deadline));
    if (verdicts > 0) continue;
    const bool entered = co_await enter(keys, deadline);
    if (!entered) {
      co_await end_attempt(keys, std::string(superseded), core::time_left(deadline));
      continue;
    }
    std::optional<core::world_info> info = co_await try_meet(keys, who, mine, true, deadline);
    if (!info) continue;
    info->epoch = static_cast<std::uint32_t>(epoch);
    co_return std::move(*info);
  }
}

task<core::world_info> meet_in_epochs(boost::asio::any_io_executor executor, job who,
                                      core::endpoint_record mine, std::int64_t least,
                                      std::shared_ptr<tcp_store_server> server, core::time_point deadline) {
  // A process whose rank has come before takes the place of one that has died.
  const epoch_entry enter = [rank = who.rank](store& epoch, core::time_point until) {
    return is_first(epoch, rank, until);
  };
  for (;;) {
    const std::unique_ptr<store> through = co_await store_of_rank_0(executor, who, deadline, server);
    result<core::world_info> met = co_await as_result(meet_at(*through, who, mine, &least, enter, deadline));
    if (met) {
      ask_later(met.value, executor, opener_of_rank_0(executor, who, server),
                prefix_of_epoch(met.value.epoch));
      co_return std::move(met.value);
    }
    const error trouble = base::error_of(met);
    if (server != nullptr || core::clock::now() >= deadline) throw trouble;
    const auto answer = co_await as_result(through->count(newest_key, patience));
    if (answer) throw trouble;  // otherwise rank 0 may come back
  }
}

}  // namespace tutti::bootstrap
