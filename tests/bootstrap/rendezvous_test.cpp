// SPDX-License-Identifier: Apache-2.0
// Ranks are threads here, each with its own loop.
#include "bootstrap/rendezvous.hpp"

#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/run_task.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/post.hpp>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tutti/scope.hpp>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using bootstrap::job;
using test::failure;
using test::run_task;

namespace {

const std::string secret = "a secret for tests";

job job_of(int rank, int size, std::chrono::milliseconds timeout = 40s) {
  job j;
  j.rank = rank;
  j.world_size = size;
  j.timeout = timeout;
  j.secret = secret;
  return j;
}

core::endpoint_record record_of(int rank) {
  core::endpoint_record record = bootstrap::local_endpoint_record(rank);
  record.pid = 1000 + rank;
  record.host = "host" + std::to_string(rank);
  record.tcp_endpoint = "127.0.0.1:" + std::to_string(5000 + rank);
  return record;
}

task<core::world_info> meet(store& through, job who, core::endpoint_record mine) {
  const core::time_point deadline = core::deadline_after(who.timeout);
  return bootstrap::meet(through, std::move(who), std::move(mine), deadline);
}

// Completes when this number of ranks has come, so that a short timeout after it applies only to the others.
task<> see_come(store& through, boost::asio::any_io_executor executor, int ranks) {
  core::wakeup pause(executor);
  for (std::int64_t came = 0; came < ranks;) {
    came = co_await through.add("came", 0);
    co_await pause.wait(core::deadline_after(came < ranks ? 1ms : 0ms));
  }
}

// Rank 0 of a program: serves the store, meets the others, and leaves last. It comes after `others`.
task<> serve_and_meet(boost::asio::any_io_executor executor, job who, std::promise<std::uint16_t>* port,
                      core::world_info* result, int others = 0) {
  const std::unique_ptr<tcp_store_server> server =
      co_await tcp_store_server::listen(executor, "127.0.0.1", 0, secret, 20s);
  port->set_value(server->port());
  const std::unique_ptr<memory_store> local = server->local();
  co_await see_come(*local, executor, others);
  std::exception_ptr failure;
  try {
    *result = co_await meet(*local, who, record_of(who.rank));
  } catch (...) {
    failure = std::current_exception();
  }
  co_await server->drain(20s);
  if (failure) std::rethrow_exception(failure);
}

task<> connect_and_meet(boost::asio::any_io_executor executor, job who, std::uint16_t port,
                        core::world_info* result) {
  const std::unique_ptr<tcp_store> client =
      co_await tcp_store::connect(executor, "127.0.0.1", port, secret, who.rank, who.timeout);
  *result = co_await meet(*client, who, record_of(who.rank));
}

task<> meet_into(store& through, job who, core::world_info* result) {
  *result = co_await meet(through, who, record_of(who.rank));
}
void check_world(const std::vector<core::world_info>& worlds) {
  const int size = static_cast<int>(worlds.size());
  for (int rank = 0; rank < size; ++rank) {
    const core::world_info& w = worlds[static_cast<std::size_t>(rank)];
    CHECK(w.id == worlds[0].id);
    CHECK(w.id != 0);
    CHECK(w.rank == rank);
    CHECK(w.size == size);
    CHECK(w.secret == secret);
    CHECK(w.timeout == 40s);
    REQUIRE(w.peers.size() == worlds.size());
    for (int peer = 0; peer < size; ++peer) {
      CHECK(w.record(peer).rank == peer);
      CHECK(w.record(peer).pid == 1000 + peer);
      CHECK(w.record(peer).tcp_endpoint == record_of(peer).tcp_endpoint);
    }
  }
}

// Ranks 0 to `size`-1 except `missing`, through a shared memory_store. If some are missing, the first
// existing rank comes last with a short timeout.
std::vector<failure> meet_in_memory(int size, std::set<int> missing, std::vector<core::world_info>* worlds) {
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  worlds->assign(static_cast<std::size_t>(size), {});
  const int impatient = missing.empty() ? -1 : missing.contains(0) ? 1 : 0;
  return test::run_threads(size, [&](int rank) {
    if (missing.contains(rank)) return;
    boost::asio::io_context context;
    memory_store mine(context.get_executor(), shared);
    if (rank == impatient)
      run_task(context, see_come(mine, context.get_executor(), size - static_cast<int>(missing.size()) - 1));
    const job who = rank == impatient ? job_of(rank, size, 100ms) : job_of(rank, size);
    (*worlds)[static_cast<std::size_t>(rank)] = run_task(context, meet(mine, who, record_of(rank)));
  });
}

}  // namespace

TEST_CASE("a rank of another job gets an error, and does not disturb the others") {
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  const auto of_job = [](int rank, const char* id) {
    job who = job_of(rank, 2);
    who.job_id = id;
    return who;
  };
  boost::asio::io_context context;
  memory_store mine(context.get_executor(), shared);
  core::background_tasks first;
  struct outcome {
    bool done = false;
    core::world_info info;
  } rank0;
  const auto meet_as_rank_0 = [](store& through, job who, outcome* result) -> task<> {
    result->info = co_await meet(through, who, record_of(0));
    result->done = true;
  };
  first.start(meet_as_rank_0(mine, of_job(0, "new"), &rank0));
  const failure f = test::failure_of([&] { run_task(context, meet(mine, of_job(1, "old"), record_of(1))); });
  CHECK(f.code == errc::join_failed);
  for (const char* part : {"job 'old'", "job 'new'", "rank 0", "TUTTI_JOB_ID", "MASTER_PORT"})
    CHECK_MESSAGE(f.says(part), f.text);
  CHECK_FALSE(rank0.done);
  // A rank without a job name is accepted.
  run_task(context, meet(mine, of_job(1, ""), record_of(1)));
  test::run_until(context, [&] { return rank0.done; });
  CHECK(rank0.info.size == 2);
}

TEST_CASE("all ranks get the same world, in memory") {
  std::uint64_t last_id = 0;
  for (const int size : {1, 2, 3, 8}) {
    std::vector<core::world_info> worlds;
    for (const failure& f : meet_in_memory(size, {}, &worlds))
      REQUIRE_MESSAGE(f.code == errc::success, f.text);
    check_world(worlds);
    CHECK(worlds[0].id != last_id);
    last_id = worlds[0].id;
  }
}

TEST_CASE("all ranks get the same world, over TCP") {
  for (const int size : {2, 5}) {
    std::vector<core::world_info> worlds(static_cast<std::size_t>(size));
    std::promise<std::uint16_t> promise;
    const std::shared_future<std::uint16_t> port = promise.get_future().share();
    const auto failures = test::run_threads(size, [&](int rank) {
      boost::asio::io_context context;
      core::world_info* const mine = &worlds[static_cast<std::size_t>(rank)];
      if (rank == 0) {
        run_task(context, serve_and_meet(context.get_executor(), job_of(rank, size), &promise, mine));
      } else {
        run_task(context, connect_and_meet(context.get_executor(), job_of(rank, size), port.get(), mine));
      }
    });
    for (const failure& f : failures) REQUIRE_MESSAGE(f.code == errc::success, f.text);
    check_world(worlds);
  }
}

TEST_CASE("every waiting rank names the missing ranks") {
  std::vector<core::world_info> worlds;
  SUBCASE("two of eight") {
    const auto failures = meet_in_memory(8, {2, 5}, &worlds);
    for (const int rank : {0, 1, 3, 4, 6, 7}) {
      const failure& f = failures[static_cast<std::size_t>(rank)];
      CHECK_MESSAGE(f.code == errc::join_failed, f.text);
      CHECK_MESSAGE(f.says("ranks 2, 5 of 8 have not joined within 100 ms"), f.text);
      CHECK_MESSAGE(f.says("rank " + std::to_string(rank) + " cannot join"), f.text);
    }
  }
  SUBCASE("rank 0") {
    const auto failures = meet_in_memory(3, {0}, &worlds);
    for (const int rank : {1, 2})
      CHECK_MESSAGE(failures[static_cast<std::size_t>(rank)].says("rank 0 of 3 has not joined"),
                    failures[static_cast<std::size_t>(rank)].text);
  }
  SUBCASE("many") {
    boost::asio::io_context context;
    memory_store store(context.get_executor());
    const failure f =
        test::failure_of([&] { run_task(context, meet(store, job_of(0, 1000, 10ms), record_of(0))); });
    CHECK(f.code == errc::join_failed);
    CHECK_MESSAGE(f.says("ranks 1-999 of 1000"), f.text);
  }
}

TEST_CASE("over TCP, too, all waiting ranks learn which are missing") {
  std::promise<std::uint16_t> promise;
  const std::shared_future<std::uint16_t> port = promise.get_future().share();
  core::world_info worlds[4];
  const auto failures = test::run_threads(4, [&](int rank) {
    boost::asio::io_context context;
    // Rank 0, which serves the store, gives up first; rank 3 does not come.
    if (rank == 0)
      run_task(context, serve_and_meet(context.get_executor(), job_of(0, 4, 100ms), &promise, &worlds[0], 2));
    if (rank == 1 || rank == 2)
      run_task(context,
               connect_and_meet(context.get_executor(), job_of(rank, 4, 30s), port.get(), &worlds[rank]));
  });
  for (int rank = 0; rank < 3; ++rank) {
    const failure& f = failures[static_cast<std::size_t>(rank)];
    CHECK_MESSAGE(f.code == errc::join_failed, f.text);
    CHECK_MESSAGE(f.says("rank 3 of 4 has not joined"), f.text);
  }
}

TEST_CASE("a rank that is stopped while it waits ends the attempt, and the others name it") {
  std::promise<std::uint16_t> promise;
  const std::shared_future<std::uint16_t> port = promise.get_future().share();
  core::world_info worlds[2];
  failure stopped;
  const auto failures = test::run_threads(2, [&](int rank) {
    boost::asio::io_context context;
    const auto executor = context.get_executor();
    if (rank == 0) return run_task(context, serve_and_meet(executor, job_of(0, 3), &promise, &worlds[0]));
    const std::unique_ptr<tcp_store> client =
        run_task(context, tcp_store::connect(executor, "127.0.0.1", port.get(), secret, 1, 20s));
    scope work;
    work.spawn(test::keep_failure(meet_into(*client, job_of(1, 3), &worlds[1]), &stopped));
    run_task(context, see_come(*client, executor, 2));
    work.cancel();
    test::run_until(context, [&] { return work.running() == 0; });
  });
  CHECK(failures[1].code == errc::success);
  CHECK_MESSAGE(stopped.code == errc::cancelled, stopped.text);
  CHECK_MESSAGE(stopped.says("rank 1 cannot join"), stopped.text);
  CHECK(failures[0].code == errc::join_failed);
  CHECK_MESSAGE(failures[0].says("rank 1 has given up: its scope was cancelled"), failures[0].text);
}

TEST_CASE("a process that joins twice is refused, and the world is not affected") {
  boost::asio::io_context context;
  memory_store store(context.get_executor());
  core::world_info first;
  bool done = false;
  const auto wait_for = [](tutti::store& s, core::world_info* into, bool* finished) -> task<> {
    *into = co_await meet(s, job_of(1, 2), record_of(1));
    *finished = true;
  };
  core::background_tasks tasks;
  tasks.start(wait_for(store, &first, &done));
  const failure f = test::failure_of([&] { run_task(context, meet(store, job_of(1, 2), record_of(1))); });
  CHECK(f.code == errc::join_failed);
  CHECK_MESSAGE(f.says("this process is already in that world: leave it first"), f.text);

  const core::world_info zero = run_task(context, meet(store, job_of(0, 2), record_of(0)));
  test::run_until(context, [&] { return done; });
  CHECK(zero.id == first.id);
  CHECK(zero.record(1).host == "host1");

  // Also if the world exists already.
  CHECK(test::failure_of([&] { run_task(context, meet(store, job_of(0, 2), record_of(0))); }).code ==
        errc::join_failed);
}

TEST_CASE("ranks with different world sizes end the rendezvous for all at once") {
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  const auto begin = std::chrono::steady_clock::now();
  const auto failures = test::run_threads(3, [&](int rank) {
    boost::asio::io_context context;
    memory_store mine(context.get_executor(), shared);
    run_task(context, meet(mine, job_of(rank, rank == 2 ? 4 : 3, 50s), record_of(rank)));
  });
  CHECK(std::chrono::steady_clock::now() - begin < 30s);
  for (const failure& f : failures) {
    CHECK_MESSAGE(f.code == errc::join_failed, f.text);
    CHECK_MESSAGE(f.says("WORLD_SIZE"), f.text);
    CHECK_MESSAGE(f.says("rank 2 (host host2, pid 1002)"), f.text);
  }
}

TEST_CASE("ranks that disagree about checksums end it for all, and a world knows the agreed setting") {
  boost::asio::io_context unused;
  for (const bool last : {false, true}) {
    const memory_store shared(unused.get_executor());
    std::atomic<int> with = 0;
    const auto failures = test::run_threads(3, [&](int rank) {
      boost::asio::io_context context;
      memory_store mine(context.get_executor(), shared);
      job who = job_of(rank, 3, 50s);
      who.checksums = rank < 2 || last;
      if (run_task(context, meet(mine, who, record_of(rank))).checksums) ++with;
    });
    CHECK(with == (last ? 3 : 0));
    for (const failure& f : failures) {
      CHECK_MESSAGE(f.code == (last ? errc::success : errc::join_failed), f.text);
      if (last) continue;
      CHECK_MESSAGE(f.says("rank 2 (host host2, pid 1002)"), f.text);
      CHECK_MESSAGE(f.says("TUTTI_CHECKSUMS"), f.text);
    }
  }
}

TEST_CASE("a late rank with another size does not disturb an existing world") {
  boost::asio::io_context context;
  memory_store store(context.get_executor());
  const core::world_info one = run_task(context, meet(store, job_of(0, 1), record_of(0)));
  const failure f = test::failure_of([&] { run_task(context, meet(store, job_of(1, 2), record_of(1))); });
  CHECK(f.code == errc::join_failed);
  CHECK(bootstrap::decode_table(run_task(context, store.get("world")), 1).id == one.id);
  CHECK(one.size == 1);
}

TEST_CASE("a store that ends while ranks wait is an error that says so") {
  boost::asio::io_context context;
  auto server =
      run_task(context, tcp_store_server::listen(context.get_executor(), "127.0.0.1", 0, secret, 20s));
  const auto client = run_task(
      context, tcp_store::connect(context.get_executor(), "127.0.0.1", server->port(), secret, 1, 20s));
  const auto meet_alone = [](store& through, failure* how, bool* done) -> task<> {
    std::exception_ptr e;
    try {
      co_await meet(through, job_of(1, 2), record_of(1));
    } catch (...) {
      e = std::current_exception();
    }
    *how = test::describe(e);
    *done = true;
  };
  failure how;
  bool done = false;
  core::background_tasks tasks;
  tasks.start(meet_alone(*client, &how, &done));
  run_task(context, server->local()->wait("came"));
  server.reset();
  test::run_until(context, [&] { return done; });
  CHECK(how.code == errc::join_failed);
  CHECK_MESSAGE(how.says("the store has gone"), how.text);
}

TEST_CASE("a store with foreign contents is an error") {
  for (const char* key : {"size", "rank/0", "records", "world"}) {
    boost::asio::io_context context;
    memory_store store(context.get_executor());
    run_task(context, store.set(key, "what is this"));
    const failure f = test::failure_of([&] { run_task(context, meet(store, job_of(0, 1), record_of(0))); });
    CHECK_MESSAGE(f.code == errc::protocol, key);
    CHECK_MESSAGE(f.says("the same tutti"), f.text);
  }
}

namespace {

void talk_to(std::uint16_t port, const std::string& text, std::vector<int>* keep_open) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0)
    static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL));
  if (keep_open != nullptr) {
    keep_open->push_back(fd);
  } else {
    ::close(fd);
  }
}

}  // namespace

TEST_CASE("unauthenticated peers at the store's port do not keep ranks from joining") {
  constexpr int size = 4;
  std::vector<core::world_info> worlds(size);
  std::promise<std::uint16_t> promise;
  const std::shared_future<std::uint16_t> port = promise.get_future().share();
  std::atomic<bool> met{false};
  std::vector<int> half_open;
  std::thread crowd([&] {
    for (int i = 0; i < 20; ++i) talk_to(port.get(), i % 2 != 0 ? "tutti\r\n" : "", &half_open);
    std::string noise;
    for (int i = 0; i < 300; ++i) noise.push_back(static_cast<char>(i * 91));
    for (int i = 0; i < 2000 && !met.load(); ++i) {
      talk_to(port.get(), "GET / HTTP/1.1\r\n\r\n", nullptr);
      talk_to(port.get(), noise, nullptr);
      talk_to(port.get(), "", nullptr);
    }
  });
  const auto failures = test::run_threads(size, [&](int rank) {
    boost::asio::io_context context;
    core::world_info* const mine = &worlds[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      run_task(context, serve_and_meet(context.get_executor(), job_of(rank, size), &promise, mine));
    } else {
      run_task(context, connect_and_meet(context.get_executor(), job_of(rank, size), port.get(), mine));
    }
  });
  met = true;
  crowd.join();
  for (const int fd : half_open) ::close(fd);
  for (const failure& f : failures) REQUIRE_MESSAGE(f.code == errc::success, f.text);
  check_world(worlds);
}
