// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/stored_records.hpp"

#include "base/throw_error.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tutti/as_result.hpp>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

constexpr int opening = -1;

std::string key_of_host(std::uint64_t world, int host) {
  return fmt::format("{}{:x}/{}", records_keys, world, host);
}

}  // namespace

task<> publish_records(store& at, const peer_table& table, std::vector<core::endpoint_record> all,
                       std::chrono::milliseconds timeout) {
  const core::host_map hosts(table.hosts, static_cast<int>(all.size()));
  std::vector<world_records> by_host(static_cast<std::size_t>(hosts.hosts()));
  for (core::endpoint_record& each : all)
    by_host[static_cast<std::size_t>(hosts.host_of(each.rank))].records.push_back(std::move(each));
  for (int host = 0; host < hosts.hosts(); ++host) {
    world_records& some = by_host[static_cast<std::size_t>(host)];
    some.world = table.id;
    co_await at.set(key_of_host(table.id, host), encode_records(some), timeout);
  }
}

task<> remove_records(store& at, const peer_table& table, std::chrono::milliseconds timeout) {
  int hosts = 0;
  for (const core::host_map::run& each : table.hosts)
    hosts = std::max({hosts, each.first + 1, each.first + each.step * (each.hosts - 1) + 1});
  for (int host = 0; host < hosts; ++host) co_await at.erase(key_of_host(table.id, host), timeout);
}

task<std::vector<core::endpoint_record>> read_records(store& from, std::uint64_t world, int host,
                                                      std::chrono::milliseconds timeout) {
  const std::string text = co_await propose(from, key_of_host(world, host), "", timeout);
  if (text.empty())
    base::throw_error(errc::peer_failed,
                      "{} has the addresses of this world's ranks no more: the ranks have met again",
                      from.name());
  world_records some = decode_records(text);
  if (some.world != world)
    base::throw_error(errc::peer_failed, "{} has addresses of another world's ranks", from.name());
  co_return std::move(some.records);
}

class stored_records::turn {
 public:
  turn(stored_records& of, int what) : of_(of), what_(what) { of.busy_.insert(what); }
  ~turn() {
    of_.busy_.erase(what_);
    of_.changed_.notify({});
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

 private:
  stored_records& of_;
  const int what_;
};

stored_records::stored_records(boost::asio::any_io_executor executor, std::uint64_t world,
                               core::host_map hosts, std::string prefix, opener open,
                               std::unique_ptr<store> at)
    : executor_(executor),
      world_(world),
      hosts_(std::move(hosts)),
      prefix_(std::move(prefix)),
      open_(std::move(open)),
      store_(std::move(at)) {}

task<> stored_records::wait_for(int what, core::time_point deadline) {
  const store_contents::watch watch(changed_, {}, executor_);
  for (bool in_time = true; busy_.contains(what);) {
    if (!in_time) throw error(errc::timed_out, "the store with its address does not answer");
    in_time = co_await watch.changed().wait(deadline, "waiting for a rank's address");
  }
}

task<> stored_records::open(core::time_point deadline) {
  while (store_ == nullptr) {
    if (busy_.contains(opening)) {
      co_await wait_for(opening, deadline);
      continue;
    }
    if (!open_) throw error(errc::peer_failed, "the store with its address has gone");
    const turn mine(*this, opening);
    result<std::unique_ptr<store>> opened = co_await as_result(open_(deadline));
    if (!opened) {
      const bool late = core::clock::now() >= deadline;
      base::throw_error(late ? errc::timed_out : errc::peer_failed,
                        "the store with its address is out of reach: {}", opened.message);
    }
    store_ = std::move(opened.value);
  }
}

task<std::vector<core::endpoint_record>> stored_records::ask(int rank, core::time_point deadline) {
  struct counted {
    int& calls;
    explicit counted(int& c) : calls(c) { ++c; }
    ~counted() { --calls; }
  } const here(calls_);
  const int host = hosts_.host_of(rank);
  if (busy_.contains(host)) {
    co_await wait_for(host, deadline);
    co_return std::vector<core::endpoint_record>();
  }
  const turn mine(*this, host);
  for (bool again = open_ != nullptr;; again = false) {
    co_await open(deadline);
    const std::shared_ptr<store> from = store_;  // another call may drop it
    std::optional<prefix_store> behind;
    if (!prefix_.empty()) behind.emplace(*from, prefix_);
    store& keys = behind ? static_cast<store&>(*behind) : *from;
    auto read = co_await as_result(read_records(keys, world_, host, core::time_left(deadline)));
    if (read) {
      const bool has_it =
          std::ranges::find(read.value, rank, &core::endpoint_record::rank) != read.value.end();
      if (!has_it) base::throw_error(errc::peer_failed, "{} has no address of rank {}", from->name(), rank);
      co_return std::move(read.value);
    }
    // The connection may have broken while it was not used.
    if (read.error != errc::peer_failed || !again) throw base::error_of(read);
    if (store_ == from) store_.reset();
  }
}

bool stored_records::close() noexcept {
  if (calls_ > 0) return false;
  open_ = nullptr;
  store_.reset();
  return true;
}

}  // namespace tutti::bootstrap
