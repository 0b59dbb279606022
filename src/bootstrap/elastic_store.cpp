// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/elastic_store.hpp"

#include "base/hmac.hpp"
#include "base/text.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <sstream>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

// Keys. A rank that comes writes an arrival under the next number, and waits for the answer of that number:
// the epoch, the size of its world and its rank there.
std::string arrival_key(std::size_t place) { return fmt::format("arrival/{}", place); }
std::string answer_key(std::size_t place) { return fmt::format("answer/{}", place); }
std::string table_key(std::int64_t epoch) { return fmt::format("table/{}", epoch); }
// Numbers of newcomers while this epoch's world runs, one after the other.
std::string newcomers_key(std::int64_t epoch, std::uint64_t change) {
  return fmt::format("newcomers/{}/{}", epoch, change);
}
constexpr const char* obstacle_key = "obstacle";
constexpr const char* withdrawn = "withdrawn";

constexpr std::size_t world_id_bytes = 8;
// Ends when the server does: nothing else limits a wait that is no fault.
constexpr std::chrono::milliseconds while_served = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds time_to_answer = std::chrono::seconds(5);

// A store in memory keeps nobody waiting: the task has ended when this returns.
void carry_out(task<> of_memory) {
  core::running_task now;
  now.start(std::move(of_memory), [](void*, std::exception_ptr) noexcept {}, nullptr);
}

task<> put(memory_store* where, std::string key, std::string value) {
  co_await where->set(std::move(key), std::move(value));
}
task<> drop(memory_store* where, std::string key) { co_await where->erase(std::move(key)); }
task<> look_for(memory_store* where, std::string key, std::string value, bool* found) {
  const store_exchange held = co_await where->compare_exchange(std::move(key), value, value);
  *found = held.exchanged;
}

[[noreturn]] void refuse_text() {
  throw error(errc::protocol,
              "the store of an elastic job holds what this version of tutti does not write: build all ranks "
              "and tutti-run of the same tutti");
}

struct answer {
  std::int64_t epoch = 0;
  int size = 0;
  int rank = 0;
};

answer decode_answer(const std::string& text) {
  std::istringstream words(text);
  answer a;
  if (!(words >> a.epoch >> a.size >> a.rank) || a.rank < 0 || a.rank >= a.size) refuse_text();
  return a;
}

}  // namespace

// ---- the launcher ----

elastic_store::elastic_store(boost::asio::any_io_executor executor, int listening_descriptor,
                             std::string secret, int least_nodes)
    : server_(tcp_store_server::adopt(std::move(executor), listening_descriptor, std::move(secret))),
      store_(server_->local()),
      members_(least_nodes) {
  serving_.start(serve(), [](void*, std::exception_ptr) noexcept {}, nullptr);
}

elastic_store::~elastic_store() = default;

void elastic_store::started(int node, int number, int start) {
  members_.started(node, number, start);
  settle();
}

void elastic_store::ended(int number, int start, bool well) {
  members_.ended(number, start, well);
  settle();
}

void elastic_store::node_lost(int node) {
  members_.node_lost(node);
  settle();
}

task<> elastic_store::serve() {
  for (std::size_t place = 0;; ++place) {
    const std::string text = co_await store_->get(arrival_key(place), while_served);
    take(place, text);
  }
}

void elastic_store::take(std::size_t place, const std::string& text) {
  std::istringstream words(text);
  membership::arrival who;
  who.place = place;
  if (!(words >> who.number >> who.start)) return;
  try {
    const std::size_t line = text.find('\n');
    const auto records = decode_endpoint_records(line == std::string::npos ? "" : text.substr(line + 1));
    if (records.size() != 1) return;
    who.record = records.front();
  } catch (const error&) {
    return;  // it learns from its own deadline; well-behaved ones are not disturbed
  }
  members_.came(std::move(who));
  settle();
}

void elastic_store::settle() {
  for (const std::size_t place : members_.waiting()) {
    bool given_up = false;
    carry_out(look_for(store_.get(), answer_key(place), withdrawn, &given_up));
    if (given_up) members_.withdrew(place);
  }
  if (std::optional<membership::world> next = members_.decide()) {
    peer_table table;
    std::uint64_t id = 0;
    const std::string random = base::random_hex(world_id_bytes);
    std::from_chars(random.data(), random.data() + random.size(), id, 16);
    table.id = id;
    for (const membership::arrival& a : next->members) {
      table.records.push_back(a.record);
      table.records.back().rank = static_cast<int>(table.records.size()) - 1;
    }
    write(table_key(next->epoch), encode_table(table));
    for (std::size_t rank = 0; rank < next->members.size(); ++rank)
      write(answer_key(next->members[rank].place),
            fmt::format("{} {} {}", next->epoch, next->members.size(), rank));
    // Its members are in the new one, or dead.
    carry_out(drop(store_.get(), table_key(next->epoch - 1)));
    told_ = 0;
    newcomers_ = 0;
  }
  if (const int now = members_.newcomers(); now != newcomers_ && members_.epoch() >= 0) {
    newcomers_ = now;
    write(newcomers_key(members_.epoch(), told_++), std::to_string(now));
  }
  if (std::string now = members_.obstacle(); now != obstacle_) {
    obstacle_ = now;
    write(obstacle_key, std::move(now));
  }
}

void elastic_store::write(std::string key, std::string value) {
  carry_out(put(store_.get(), std::move(key), std::move(value)));
}

// ---- a rank ----

newcomer_watch::newcomer_watch(job who, std::int64_t epoch) {
  boost::asio::post(context_, [this, who, epoch] {
    watching_.start(watch(who, epoch), [](void*, std::exception_ptr) noexcept {}, nullptr);
  });
  // Signals are for the program's own threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { context_.run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

newcomer_watch::~newcomer_watch() {
  context_.stop();
  thread_.join();
}

// Ends with the store: nobody else admits ranks.
task<> newcomer_watch::watch(job who, std::int64_t epoch) {
  const std::unique_ptr<store> through =
      co_await store_of_rank_0(context_.get_executor(), who, core::deadline_after(who.timeout));
  for (std::uint64_t change = 0;; ++change) {
    const std::string text = co_await through->get(newcomers_key(epoch, change), while_served);
    int now = 0;
    std::from_chars(text.data(), text.data() + text.size(), now);
    count_.store(now, std::memory_order_relaxed);
  }
}

namespace {

task<std::size_t> announce(store& through, std::string text, core::time_point deadline) {
  std::size_t place = co_await through.count("arrival/", core::time_left(deadline));
  for (;; ++place) {
    const store_exchange written =
        co_await through.compare_exchange(arrival_key(place), "", text, core::time_left(deadline));
    if (written.exchanged) co_return place;
  }
}

// Returns the answer if it comes in time; otherwise `why` says what it needs.
task<std::string> await_answer(store& through, std::size_t place, std::chrono::milliseconds limit,
                               std::string* why) {
  bool in_time = true;
  std::string text;
  try {
    text = co_await through.get(answer_key(place), limit);
  } catch (const error& e) {
    if (e.code() != errc::timed_out) throw;
    in_time = false;
  }
  if (in_time) co_return text;
  store_exchange given_up =
      co_await through.compare_exchange(answer_key(place), "", withdrawn, time_to_answer);
  if (!given_up.exchanged) co_return given_up.value;
  const store_exchange said = co_await through.compare_exchange(obstacle_key, "", "", time_to_answer);
  *why = said.value;
  co_return std::string();
}

}  // namespace

task<elastic_world> meet_in_elastic_store(boost::asio::any_io_executor executor, job who,
                                          core::endpoint_record mine, core::time_point deadline) {
  std::string trouble;
  try {
    std::unique_ptr<store> through = co_await store_of_rank_0(executor, who, deadline);
    const std::string text = fmt::format("{} {}\n{}", who.rank, who.restarts, encode_endpoint_record(mine));
    const std::size_t place = co_await announce(*through, text, deadline);
    const std::chrono::milliseconds limit = who.newcomer ? while_served : core::time_left(deadline);
    std::string why;
    const std::string said = co_await await_answer(*through, place, limit, &why);
    if (said.empty())
      throw error(errc::join_failed, fmt::format("no world within {}: {} (allow more time by TUTTI_TIMEOUT, "
                                                 "in seconds)",
                                                 base::duration_text(who.timeout), why));
    const answer mine_in = decode_answer(said);
    const std::string lines = co_await through->get(table_key(mine_in.epoch), time_to_answer);
    peer_table table = decode_table(lines, mine_in.size);
    elastic_world world;
    world.info.id = table.id;
    world.info.rank = mine_in.rank;
    world.info.size = mine_in.size;
    world.info.epoch = static_cast<std::uint32_t>(mine_in.epoch);
    world.info.secret = who.secret;
    world.info.checksums = who.checksums;
    world.info.tls = who.tls;
    world.info.timeout = who.timeout;
    world.info.peers = std::move(table.records);
    world.newcomers = std::make_unique<newcomer_watch>(who, mine_in.epoch);
    co_return std::move(world);
  } catch (const error& e) {
    if (e.code() != errc::peer_failed && e.code() != errc::timed_out) throw;
    trouble = e.what();
  }
  throw error(
      errc::join_failed,
      fmt::format("rank {} cannot join: tutti-run of node 0, which serves the store, has gone or does "
                  "not answer: {}",
                  who.rank, trouble));
}

}  // namespace tutti::bootstrap
