// SPDX-License-Identifier: Apache-2.0
// Worlds that meet in etcd: ranks in any order, and keys of earlier runs.
#include "bootstrap/rendezvous.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/child.hpp"
#include "support/etcd.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using bootstrap::job;
using test::child;
using test::failure;
using test::run_task;

namespace {

test::etcd_cluster& shared_cluster() {
  static test::etcd_cluster one(1);
  return one;
}

std::string new_place() {
  static int number = 0;
  return shared_cluster().url("rendezvous " + std::to_string(++number));
}

job job_of(const std::string& url, int rank, int size, const std::string& id = {},
           std::chrono::milliseconds timeout = 50s) {
  job j;
  j.rank = rank;
  j.world_size = size;
  j.etcd = url;
  j.job_id = id;
  j.timeout = timeout;
  return j;
}

core::world_info meet(boost::asio::io_context& context, const job& who, int pid) {
  core::endpoint_record record = bootstrap::local_endpoint_record(who.rank);
  record.pid = pid;
  return run_task(context, bootstrap::meet_in_etcd(context.get_executor(), who, record,
                                                   core::deadline_after(who.timeout)));
}

// Starts all ranks as threads. Those of this run have `first_pid` + rank for a process.
std::vector<core::world_info> meet_all(const std::string& url, int size, int first_pid,
                                       const std::string& id = {}) {
  std::vector<core::world_info> worlds(static_cast<std::size_t>(size));
  const auto failures = test::run_threads(size, [&](int rank) {
    boost::asio::io_context context;
    worlds[static_cast<std::size_t>(rank)] = meet(context, job_of(url, rank, size, id), first_pid + rank);
  });
  for (const failure& f : failures) REQUIRE_MESSAGE(f.code == errc::success, f.text);
  for (const core::world_info& w : worlds) {
    CHECK(w.id == worlds[0].id);
    CHECK(w.secret == worlds[0].secret);
    REQUIRE(w.peers.size() == worlds.size());
    for (int peer = 0; peer < size; ++peer) CHECK(w.record(peer).pid == first_pid + peer);
  }
  CHECK(worlds[0].secret.size() == 64);
  return worlds;
}

task<> see_come(store& all, boost::asio::any_io_executor executor, std::int64_t ranks) {
  core::wakeup pause(executor);
  for (std::int64_t came = 0; came < ranks;) {
    came = co_await all.add("-/epoch/0/came", 0);
    if (came < ranks) co_await pause.wait(core::deadline_after(5ms));
  }
}

// Processes that take part as these ranks until they are killed. They have come when this returns.
std::vector<std::unique_ptr<child>> take_part(const std::string& url, const std::vector<int>& ranks,
                                              int size) {
  std::vector<std::unique_ptr<child>> made;
  for (const int rank : ranks)
    made.push_back(std::make_unique<child>([=](const auto&) {
      boost::asio::io_context own;
      meet(own, job_of(url, rank, size), 1);
      return 0;
    }));
  boost::asio::io_context context;
  const auto seen = run_task(context, etcd_store::connect(context.get_executor(), url, 50s));
  run_task(context, see_come(*seen, context.get_executor(), static_cast<std::int64_t>(ranks.size())));
  return made;
}

}  // namespace

TEST_CASE("ranks meet in etcd, again and again in one place") {
  TUTTI_NEEDS_ETCD();
  const std::string url = new_place();
  const auto first = meet_all(url, 2, 1000);
  const auto second = meet_all(url, 7, 2000);
  const auto third = meet_all(url, 2, 3000, "named");
  CHECK(first[0].id != second[0].id);
  CHECK(first[0].id != third[0].id);
  CHECK(first[0].secret != third[0].secret);
}

TEST_CASE("ranks that died while they waited are in no later world") {
  TUTTI_NEEDS_ETCD();
  for (const int size : {2, 4}) {
    const std::string url = new_place();
    std::vector<int> old;
    for (int rank = 0; rank < size / 2; ++rank) old.push_back(rank);
    take_part(url, old, size).clear();
    meet_all(url, size, 1000);
  }
}

TEST_CASE("a rank that is missing, and one that is there twice") {
  TUTTI_NEEDS_ETCD();
  boost::asio::io_context context;
  failure f = test::failure_of([&] { meet(context, job_of(new_place(), 0, 2, {}, 1s), 1); });
  CHECK(f.code == errc::join_failed);
  for (const char* part : {"rank 1", "not joined within 1 s", "TUTTI_TIMEOUT", "etcd://"})
    CHECK_MESSAGE(f.says(part), f.text);

  const std::string url = new_place();
  const auto waits = take_part(url, {0}, 2);
  f = test::failure_of([&] { meet(context, job_of(url, 0, 2), 1); });
  CHECK(f.code == errc::join_failed);
  CHECK_MESSAGE(f.says("two processes with rank 0"), f.text);
  meet(context, job_of(url, 1, 2), 1);  // the first one was not disturbed
}

TEST_CASE("no etcd where the ranks are to meet") {
  boost::asio::io_context context;
  std::uint16_t port = 0;
  test::listening_socket(port).reset();
  const std::string url = "etcd://127.0.0.1:" + std::to_string(port) + "/job";
  const failure f = test::failure_of([&] { meet(context, job_of(url, 1, 2, {}, 300ms), 1); });
  CHECK(f.code == errc::join_failed);
  for (const char* part : {"rank 1 cannot join", "no etcd has answered", "endpoint health"})
    CHECK_MESSAGE(f.says(part), f.text);
}
