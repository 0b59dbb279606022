// SPDX-License-Identifier: Apache-2.0
// Worlds that meet at a file: ranks in any order, and remains of earlier runs.
#include "bootstrap/contended_steps.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/store_file.hpp"
#include "core/wakeup.hpp"
#include "support/child.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <future>
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
namespace fs = std::filesystem;

namespace {

job job_of(const std::string& file, int rank, int size, const std::string& id = {},
           std::chrono::milliseconds timeout = 40s) {
  job j;
  j.rank = rank;
  j.world_size = size;
  j.rendezvous_file = file;
  j.job_id = id;
  j.timeout = timeout;
  return j;
}

core::world_info meet(boost::asio::io_context& context, const job& who) {
  core::endpoint_record record = bootstrap::local_endpoint_record(who.rank);
  record.pid = 1000 + who.rank;
  return run_task(context, bootstrap::meet_at_file(context.get_executor(), who, record,
                                                   core::deadline_after(who.timeout)));
}

// Starts all ranks as threads in the order of `order`.
std::vector<core::world_info> meet_all(const std::string& file, const std::vector<int>& order,
                                       const std::string& id = {}) {
  const int size = static_cast<int>(order.size());
  std::vector<core::world_info> worlds(order.size());
  const auto failures = test::run_threads(size, [&](int place) {
    boost::asio::io_context context;
    const int rank = order[static_cast<std::size_t>(place)];
    worlds[static_cast<std::size_t>(rank)] = meet(context, job_of(file, rank, size, id));
  });
  for (const failure& f : failures) REQUIRE_MESSAGE(f.code == errc::success, f.text);
  for (const core::world_info& w : worlds) {
    CHECK(w.id == worlds[0].id);
    CHECK(w.secret == worlds[0].secret);
    REQUIRE(w.peers.size() == worlds.size());
    for (int peer = 0; peer < size; ++peer) CHECK(w.record(peer).pid == 1000 + peer);
  }
  CHECK(worlds[0].secret.size() == 64);
  return worlds;
}

// Returns when this number of ranks takes part in the first epoch.
task<> see_come(store& s, boost::asio::any_io_executor executor, const std::string& of_job, int ranks) {
  core::wakeup pause(executor);
  for (;;) {
    const std::int64_t came = co_await s.add(of_job + "/epoch/0/came", 0);
    if (came >= ranks) co_return;
    co_await pause.wait(core::deadline_after(1ms));
  }
}

void see_come(const std::string& file, const std::string& of_job, int ranks) {
  boost::asio::io_context context;
  const auto seen = run_task(context, file_store::open(context.get_executor(), file, 20s));
  run_task(context, see_come(*seen, context.get_executor(), of_job, ranks));
}

// A process that takes part as this rank until it is killed. It has arrived when this returns.
std::unique_ptr<child> take_part(const std::string& file, int rank, int size, const std::string& id = {}) {
  auto made = std::make_unique<child>([=](const auto&) {
    boost::asio::io_context own;
    meet(own, job_of(file, rank, size, id));
    return 0;
  });
  see_come(file, id.empty() ? "-" : id, 1);
  return made;
}

}  // namespace

TEST_CASE("ranks meet at a file in any order, and leave no files") {
  const test::scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  std::string last_secret;
  std::uint64_t last_id = 0;
  for (const std::vector<int>& order : {std::vector<int>{0, 1}, {2, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}}) {
    const auto worlds = meet_all(file, order);
    CHECK(worlds[0].secret != last_secret);
    CHECK(worlds[0].id != last_id);
    last_secret = worlds[0].secret;
    last_id = worlds[0].id;
    CHECK_FALSE(fs::exists(file));
  }
}

TEST_CASE("a given secret is used") {
  const test::scratch_directory scratch;
  std::vector<std::string> secrets(2);
  const auto failures = test::run_threads(2, [&](int rank) {
    boost::asio::io_context context;
    job who = job_of(scratch.path() / "rendezvous", rank, 2);
    who.secret = "given";
    secrets[static_cast<std::size_t>(rank)] = meet(context, who).secret;
  });
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  CHECK(secrets == std::vector<std::string>{"given", "given"});
}

TEST_CASE("the next world of the same ranks meets at the same file") {
  const test::scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  std::vector<std::vector<std::uint64_t>> ids(3);
  const auto failures = test::run_threads(3, [&](int rank) {
    boost::asio::io_context context;
    for (int round = 0; round < 10; ++round)
      ids[static_cast<std::size_t>(rank)].push_back(meet(context, job_of(file, rank, 3)).id);
  });
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  CHECK(ids[0] == ids[1]);
  CHECK(ids[0] == ids[2]);
}

TEST_CASE("a run that crashed during its rendezvous does not disturb later ones") {
  const test::scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  SUBCASE("when all its ranks have ended") {
    take_part(file, 1, 3)->end(SIGKILL);
    CHECK(fs::exists(file));
    meet_all(file, {0, 1, 2});
  }
  SUBCASE("when one of its ranks is left, stopped, and the new run has an id of its own") {
    const auto left = take_part(file, 1, 3, "old");
    {
      // Unless it holds the lock itself, which it does for a moment whenever the file changes.
      bootstrap::store_file locked(file);
      while (!locked.try_lock()) ::usleep(100);
      left->stop();
    }
    meet_all(file, {0, 1, 2}, "new");
    CHECK(fs::exists(file));
  }
}

TEST_CASE("a rank that died before the world was formed may be restarted, and the others wait for it") {
  const test::scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  auto unlucky = take_part(file, 1, 3);
  std::vector<std::uint64_t> ids(3);
  std::promise<void> died;
  std::shared_future<void> then = died.get_future().share();
  const auto failures = test::run_threads(4, [&](int rank) {
    if (rank == 3) {
      see_come(file, "-", 2);  // rank 0 waits in the first attempt
      unlucky->end(SIGKILL);
      died.set_value();
      return;
    }
    if (rank != 0) then.wait();
    boost::asio::io_context context;
    ids[static_cast<std::size_t>(rank)] = meet(context, job_of(file, rank, 3)).id;
  });
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  CHECK(ids[0] == ids[1]);
  CHECK(ids[0] == ids[2]);
  CHECK_FALSE(fs::exists(file));
}

namespace {

task<> meet_and_forget(boost::asio::any_io_executor executor, job who) {
  co_await bootstrap::meet_at_file(executor, who, bootstrap::local_endpoint_record(who.rank),
                                   core::deadline_after(who.timeout));
}

}  // namespace

TEST_CASE("a rendezvous that is destroyed at any of its steps leaves the lock free") {
  const test::scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  boost::asio::io_context context;
  for (int steps = 0; steps < 40; ++steps) {
    // It waits for rank 1, which never comes.
    CHECK(test::destroy_after(context, file, steps,
                              meet_and_forget(context.get_executor(), job_of(file, 0, 2))));
    REQUIRE_MESSAGE(test::is_lock_free(file), "after " << steps << " steps");
  }
}

TEST_CASE("an error names missing and duplicate ranks, and the file") {
  const test::scratch_directory scratch;
  const std::string file = scratch.path() / "rendezvous";
  boost::asio::io_context context;
  SUBCASE("missing") {
    const failure f = test::failure_of([&] { meet(context, job_of(file, 0, 3, {}, 100ms)); });
    CHECK(f.code == errc::join_failed);
    CHECK_MESSAGE(f.says("ranks 1-2 of 3"), f.text);
    CHECK_MESSAGE(f.says(file), f.text);
    CHECK_FALSE(fs::exists(file));
  }
  SUBCASE("twice") {
    const auto first = take_part(file, 1, 3);
    const failure f = test::failure_of([&] { meet(context, job_of(file, 1, 3)); });
    CHECK(f.code == errc::join_failed);
    CHECK_MESSAGE(f.says("two processes with rank 1: pid 1001 on host "), f.text);
    CHECK_MESSAGE(f.says(", which came first, and this one, pid 1001 on host "), f.text);
    CHECK(f.says("RANK"));
  }
  SUBCASE("in a missing directory") {
    const failure f = test::failure_of([&] { meet(context, job_of(scratch.path() / "no" / "file", 0, 3)); });
    CHECK(f.code == errc::invalid_argument);
  }
}

TEST_CASE("a private rendezvous makes its directory and removes it") {
  const test::scratch_directory scratch;
  for (int round = 0; round < 5; ++round) {
    const auto failures = test::run_threads(4, [&](int rank) {
      boost::asio::io_context context;
      job who = job_of(scratch.path() / "private" / "rendezvous", rank, 4);
      who.private_rendezvous = true;
      meet(context, who);
    });
    for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
    CHECK_FALSE(fs::exists(scratch.path() / "private"));
  }
}
