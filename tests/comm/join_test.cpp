// SPDX-License-Identifier: Apache-2.0
// Two jobs, each of ranks that are threads, meet in a store.
#include "base/files.hpp"
#include "support/local_world.hpp"
#include "support/run_task.hpp"
#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <tutti/join.hpp>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace tutti;
using namespace tutti::test;

namespace {

task<std::unique_ptr<file_store>> open(communicator world, const std::string* path) {
  return file_store::open(world.get_executor(), *path, patience);
}

// The job of `ours` ranks; the other has `theirs`.
task<> meet_and_add(communicator world, int theirs, const std::string* path, std::vector<int>* firsts) {
  const auto store = co_await open(world, path);
  const joined both = co_await join(world, "trainers and servers", *store);
  const int ours = world.size();
  TUTTI_EXPECT(both.all.size() == ours + theirs);
  TUTTI_EXPECT(both.here.size == ours);
  TUTTI_EXPECT(both.there.size == theirs);
  TUTTI_EXPECT(both.all.rank() == both.here.first + world.rank());
  TUTTI_EXPECT(both.here.first == (both.there.first == 0 ? theirs : 0));
  if (world.rank() == 0) firsts->push_back(both.here.first);
  std::vector<int> x = {1, world.rank()};
  co_await both.all.all_reduce(x, sum);
  TUTTI_EXPECT(x[0] == ours + theirs);
  TUTTI_EXPECT(x[1] == ours * (ours - 1) / 2 + theirs * (theirs - 1) / 2);
  // A message to the other job's rank of the same number, and the own world beside it.
  if (const int partner = both.there.first + world.rank(); world.rank() < theirs) {
    int mine = ours, got = 0;
    request sending = both.all.isend(mine, partner);
    co_await both.all.recv(got, partner);
    co_await sending;
    TUTTI_EXPECT(got == theirs);
  }
  std::vector<int> own = {1};
  co_await world.all_reduce(own, sum);
  TUTTI_EXPECT(own[0] == ours);
}

constexpr auto short_time = 1s;

// Comes when the other job's operations would have timed out.
task<> meet_late(communicator world, const std::string* path, std::vector<int>* firsts) {
  {
    const auto store = co_await open(world, path);
    co_await store->wait("trainers and servers/jobs");
  }
  co_await sleep_for(short_time + 200ms);
  co_await meet_and_add(std::move(world), 2, path, firsts);
}

// A job on a thread of its own.
class job {
 public:
  template <class F>
  job(int ranks, F main, std::chrono::milliseconds timeout = patience)
      : thread_([this, ranks, main, timeout] {
          try {
            run_local(ranks, over("tcp", timeout), main);
          } catch (...) {
            failure_ = std::current_exception();
          }
        }) {}
  void end() {
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
  std::thread thread_;
};

task<> fail_to_meet(communicator world, const std::string* path, errc of_first) {
  const auto store = co_await open(world, path);
  store->set_timeout(50ms);
  errc code = errc::success;
  try {
    co_await join(world, "alone", *store);
  } catch (const error& e) {
    code = static_cast<errc>(e.code().value());
  }
  TUTTI_EXPECT(code == (world.rank() == 0 ? of_first : errc::join_failed));
  co_await world.barrier();  // it goes on
}

// With this secret; returns how it ended.
task<> join_with(communicator world, const std::string* path, std::string secret, errc* ended) {
  const auto store = co_await open(world, path);
  init_options how;
  how.secret = std::move(secret);
  how.timeout = 2s;
  *ended = errc::success;
  try {
    joined both = co_await join(world, "secretly", *store, how);
    co_await both.all.barrier();
  } catch (const error& e) {
    *ended = static_cast<errc>(e.code().value());
  }
  const std::string kept = base::contents_of(*path);
  TUTTI_EXPECT(kept.find("jobs") != std::string::npos);  // a key
  TUTTI_EXPECT(kept.find("what only") == std::string::npos);
}

}  // namespace

TEST_CASE("join: a secret that the jobs name is not written to the store; with another one nobody joins") {
  for (const std::string other : {"what only the jobs know", "something else", ""}) {
    CAPTURE(other);
    const scratch_directory folder;
    const std::string path = (folder.path() / "store").string();
    errc ended_a = errc::protocol, ended_b = errc::protocol;
    job one(1, [&](communicator world) {
      return join_with(std::move(world), &path, "what only the jobs know", &ended_a);
    });
    job two(1, [&](communicator world) { return join_with(std::move(world), &path, other, &ended_b); });
    one.end();
    two.end();
    CHECK((ended_a == errc::success) == (other == "what only the jobs know"));
    CHECK((ended_b == errc::success) == (other == "what only the jobs know"));
  }
}

TEST_CASE("join: two jobs of any sizes are one world, beside their own") {
  for (const auto& [a, b] : {std::pair(3, 2), std::pair(1, 4), std::pair(1, 1)}) {
    CAPTURE(a);
    CAPTURE(b);
    const scratch_directory folder;
    const std::string path = (folder.path() / "store").string();
    std::vector<int> firsts_a, firsts_b;
    job one(a, [&, theirs = b](communicator world) {
      return meet_and_add(std::move(world), theirs, &path, &firsts_a);
    });
    job two(b, [&, theirs = a](communicator world) {
      return meet_and_add(std::move(world), theirs, &path, &firsts_b);
    });
    CHECK_NOTHROW(one.end());
    CHECK_NOTHROW(two.end());
    REQUIRE(firsts_a.size() == 1);
    REQUIRE(firsts_b.size() == 1);
    CHECK((firsts_a[0] == 0) != (firsts_b[0] == 0));
  }
}

TEST_CASE("join: a job that stays alone, and a third one, are told on all ranks") {
  const scratch_directory folder;
  const std::string path = (folder.path() / "store").string();
  const auto fails = [&path](errc of_first) {
    return [&path, of_first](communicator world) { return fail_to_meet(std::move(world), &path, of_first); };
  };
  boost::asio::io_context context(1);
  // Keeps the file while nobody else has it.
  const auto store = run_task(context, file_store::open(context.get_executor(), path, patience));
  CHECK_NOTHROW(run_local(3, over("tcp"), fails(errc::timed_out)));
  CHECK_NOTHROW(
      run_local(2, over("tcp"), fails(errc::join_failed)));  // it comes too late, and hears so at once
  run_task(context, store->erase("alone/world"));
  run_task(context, store->add("alone/jobs", 1));
  CHECK_NOTHROW(run_local(2, over("tcp"), fails(errc::invalid_argument)));
}

TEST_CASE(
    "join: a job whose operations have a short time waits for the other one as long as its store does") {
  const scratch_directory folder;
  const std::string path = (folder.path() / "store").string();
  boost::asio::io_context context(1);
  const auto keeps = run_task(context, file_store::open(context.get_executor(), path, patience));
  std::vector<int> firsts_a, firsts_b;
  job hasty(
      2, [&](communicator world) { return meet_and_add(std::move(world), 2, &path, &firsts_a); }, short_time);
  job late(2, [&](communicator world) { return meet_late(std::move(world), &path, &firsts_b); });
  CHECK_NOTHROW(hasty.end());
  CHECK_NOTHROW(late.end());
  CHECK(firsts_a == std::vector{0});
}
