// SPDX-License-Identifier: Apache-2.0
// Ranks that meet repeatedly, on one thread: any rank may die or come first, and rank 0's store may end in
// between.

#include "base/unique_fd.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/listening_socket.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <tutti/scope.hpp>
#include <tutti/store.hpp>

using namespace tutti;
using namespace std::chrono_literals;

namespace {

constexpr int ranks = 3;
const std::string secret = "a secret for tests";

// The launcher's socket, which outlives the processes that serve at it.
struct held_socket {
  int copy() const { return ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0); }
  std::uint16_t port = 0;
  base::unique_fd fd = test::listening_socket(port, SOCK_NONBLOCK);
};

// One process of a rank, from its arrival to its death, which is its destructor.
class process {
 public:
  process(boost::asio::io_context& context, const held_socket& where, int rank, std::int64_t least,
          std::shared_ptr<tcp_store_server> server = nullptr, std::chrono::milliseconds timeout = 40s) {
    running_.start(
        take_part(context.get_executor(), job_of(where, rank, timeout), least, std::move(server), &info_),
        [](void* self, std::exception_ptr failure) noexcept {
          static_cast<process*>(self)->failure_ = test::describe(failure);
          static_cast<process*>(self)->done_ = true;
        },
        this);
  }
  bool done() const { return done_; }
  const test::failure& failure() const { return failure_; }
  const core::world_info& info() const { return info_; }

  static bootstrap::job job_of(const held_socket& where, int rank, std::chrono::milliseconds timeout = 40s) {
    bootstrap::job who;
    who.rank = rank;
    who.world_size = ranks;
    who.timeout = timeout;
    who.secret = secret;
    who.silence_limit = 1234ms;
    who.suspect_grace = 2345ms;
    who.tcp_connections = 3;
    who.master_host = "127.0.0.1";
    who.master_port = where.port;
    return who;
  }
  static task<> take_part(boost::asio::any_io_executor executor, bootstrap::job who, std::int64_t least,
                          std::shared_ptr<tcp_store_server> server, core::world_info* info) {
    core::endpoint_record mine = bootstrap::local_endpoint_record(who.rank);
    const core::time_point deadline = core::deadline_after(who.timeout);
    *info = co_await bootstrap::meet_in_epochs(executor, who, mine, least, std::move(server), deadline);
  }

 private:
  bool done_ = false;
  test::failure failure_;
  core::world_info info_;
  core::running_task running_;
};

struct place {
  boost::asio::io_context context;
  held_socket where;
  std::shared_ptr<tcp_store_server> server = serve();

  std::shared_ptr<tcp_store_server> serve() {
    return tcp_store_server::adopt(context.get_executor(), where.copy(), secret);
  }
  std::unique_ptr<process> come(int rank, std::int64_t least, std::chrono::milliseconds timeout = 40s) {
    return std::make_unique<process>(context, where, rank, least, rank == 0 ? server : nullptr, timeout);
  }
  // Waits until this number of ranks has come to that epoch.
  void wait_for(std::int64_t epoch, int come) {
    const std::unique_ptr<memory_store> store = server->local();
    prefix_store keys(*store, "epoch/" + std::to_string(epoch));
    const auto end = std::chrono::steady_clock::now() + test::run_limit;
    while (test::run_task(context, count(keys)) < come) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      context.run_one_for(10ms);
    }
  }
  static task<std::int64_t> count(store& keys) {
    std::int64_t came = co_await keys.add("came", 0);
    co_return came;
  }
  template <std::size_t N>
  void meet(const std::array<process*, N>& all, std::uint32_t epoch) {
    for (const process* p : all) test::run_until(context, [p] { return p->done(); });
    for (const process* p : all) {
      CHECK(p->failure().text == "");
      CHECK(p->info().epoch == epoch);
      CHECK(p->info().id == all[0]->info().id);
      CHECK(p->info().id != 0);
      CHECK(p->info().size == ranks);
      CHECK(p->info().silence_limit == 1234ms);
      CHECK(p->info().suspect_grace == 2345ms);
      CHECK(p->info().tcp_connections == 3);
    }
  }
};

}  // namespace

TEST_CASE("epochs: all ranks meet in the requested epoch, and in the next") {
  place p;
  const auto a = p.come(0, 0), b = p.come(1, 0), c = p.come(2, 0);
  p.meet(std::array{a.get(), b.get(), c.get()}, 0);
  const auto d = p.come(2, 1), e = p.come(0, 1), f = p.come(1, 1);
  p.meet(std::array{d.get(), e.get(), f.get()}, 1);
  CHECK(a->info().id != d->info().id);
}

TEST_CASE("epochs: all ranks join the latest requested epoch") {
  place p;
  const auto a = p.come(0, 1), b = p.come(1, 2);
  p.wait_for(2, 2);
  const auto c = p.come(2, 7);
  p.meet(std::array{a.get(), b.get(), c.get()}, 7);
}

TEST_CASE("epochs: a rank that requests an earlier epoch joins the waiting ones") {
  place p;
  const auto a = p.come(0, 4), b = p.come(1, 4);
  p.wait_for(4, 2);
  const auto c = p.come(2, 1);
  p.meet(std::array{a.get(), b.get(), c.get()}, 4);
}

TEST_CASE("epochs: a rank that died is restarted, and all go on to the next epoch") {
  place p;
  const auto a = p.come(0, 1);
  auto b = p.come(1, 1);
  p.wait_for(1, 2);
  b.reset();
  const auto again = p.come(1, 1);
  p.wait_for(2, 2);
  const auto c = p.come(2, 1);
  p.meet(std::array{a.get(), again.get(), c.get()}, 2);
}

TEST_CASE("epochs: a rank that is stopped while it waits leaves, and the others meet in the next epoch") {
  place at;
  auto zero = at.come(0, 0);
  core::world_info none;
  test::failure stopped;
  scope work;
  work.spawn(test::keep_failure(
      process::take_part(at.context.get_executor(), process::job_of(at.where, 1), 0, nullptr, &none),
      &stopped));
  at.wait_for(0, 2);
  work.cancel();
  test::run_until(at.context, [&] { return work.running() == 0; });
  CHECK_MESSAGE(stopped.code == errc::cancelled, stopped.text);
  CHECK_FALSE(zero->done());
  auto one = at.come(1, 0), two = at.come(2, 0);
  at.meet(std::array{zero.get(), one.get(), two.get()}, 1);
}

TEST_CASE("epochs: rank 0 dies with its store, and serves again") {
  place p;
  auto a = p.come(0, 3);
  const auto b = p.come(1, 3);
  p.wait_for(3, 2);
  a.reset();
  p.server.reset();
  // Its new process knows no epoch.
  p.server = p.serve();
  const auto again = p.come(0, 1), c = p.come(2, 3);
  p.meet(std::array{again.get(), b.get(), c.get()}, 3);
}

TEST_CASE("epochs: missing ranks are named") {
  place p;
  const auto a = p.come(0, 1), b = p.come(1, 1, 200ms);
  for (const process* one : {a.get(), b.get()}) {
    test::run_until(p.context, [one] { return one->done(); });
    CHECK(one->failure().code == errc::join_failed);
    CHECK(one->failure().says("rank 2 of 3 has not joined"));
  }
}
