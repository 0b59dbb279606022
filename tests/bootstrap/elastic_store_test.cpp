// SPDX-License-Identifier: Apache-2.0
// The launcher's store and ranks that meet in it, on one thread.
#include "bootstrap/elastic_store.hpp"

#include "base/unique_fd.hpp"
#include "bootstrap/relayed_store.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/listening_socket.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tutti/scope.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using tutti::bootstrap::membership;
using namespace std::chrono_literals;

namespace {

const std::string secret_of_test = "a secret for tests";

struct meeting_place {
  explicit meeting_place(int least_nodes, bootstrap::quorum needed = bootstrap::quorum::none) {
    server = tcp_store_server::adopt(context.get_executor(), test::listening_socket(port).release(),
                                     secret_of_test);
    store.emplace(context.get_executor(), server->local(), least_nodes, needed,
                  [this](const std::string& why) { lost = why; });
    store->serve();
  }
  bootstrap::job job_of(int number, int start = 0) const {
    bootstrap::job who;
    who.rank = number;
    who.restarts = start;
    who.newcomer = start > 0;
    who.elastic = true;
    who.timeout = 40s;
    who.secret = secret_of_test;
    who.master_host = "127.0.0.1";
    who.master_port = port;
    who.store_listens = true;
    return who;
  }
  template <class Done>
  void run_until(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + test::run_limit;
    while (!done()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      context.run_one_for(10ms);
    }
  }
  boost::asio::io_context context;
  std::uint16_t port = 0;
  std::unique_ptr<tcp_store_server> server;
  std::string lost;  // why the store failed
  std::optional<bootstrap::elastic_store> store;
};

// One process, from its arrival to its death, which is its destructor.
struct member {
  member(meeting_place& at, bootstrap::job who) {
    running.start(
        meet(at.context.get_executor(), who, &world),
        [](void* self, std::exception_ptr e) noexcept {
          static_cast<member*>(self)->failure = test::describe(e);
          static_cast<member*>(self)->done = true;
        },
        this);
  }
  static task<> meet(boost::asio::any_io_executor executor, bootstrap::job who, core::world_info* into) {
    core::endpoint_record mine = bootstrap::local_endpoint_record(who.rank);
    *into = co_await bootstrap::meet_in_elastic_store(executor, who, mine, core::deadline_after(who.timeout));
  }
  bool done = false;
  test::failure failure;
  core::world_info world;
  core::running_task running;
};

}  // namespace

TEST_SUITE("bootstrap/elastic_store") {
  TEST_CASE("ranks meet, learn of newcomers, and meet them") {
    meeting_place at(1);
    for (const int number : {0, 1}) at.store->tell(&membership::started, 0, number, 0);
    auto zero = std::make_unique<member>(at, at.job_of(0));
    auto one = std::make_unique<member>(at, at.job_of(1));
    at.run_until([&] { return zero->done && one->done; });
    CHECK(zero->failure.text.empty());
    CHECK(zero->world.rank == 0);
    CHECK(one->world.rank == 1);
    CHECK(one->world.size == 2);
    CHECK(one->world.epoch == 0);
    CHECK(one->world.id == zero->world.id);
    const bootstrap::newcomer_watch of_zero(at.job_of(0), zero->world.epoch),
        of_one(at.job_of(1), one->world.epoch);
    CHECK(of_zero.count() == 0);

    at.store->tell(&membership::started, 1, 2, 0);
    member two(at, at.job_of(2));
    at.run_until([&] { return of_zero.count() == 1 && of_one.count() == 1; });
    CHECK(!two.done);

    at.store->tell(&membership::ended, 0, 0, false);  // rank 0 dies
    const std::uint64_t first = one->world.id;
    member again(at, at.job_of(1));
    at.run_until([&] { return again.done && two.done; });
    CHECK(again.world.rank == 0);
    CHECK(two.world.rank == 1);
    CHECK(two.world.epoch == 1);
    CHECK(two.world.id != first);
    CHECK(two.world.record(0).rank == 0);
    CHECK(!at.store->over());
    at.store->tell(&membership::ended, 1, 0, true);
    at.store->tell(&membership::ended, 2, 0, true);
    CHECK(at.store->over());
  }

  TEST_CASE("ranks meet through the launcher of their node, or without it") {
    meeting_place at(1);
    std::uint16_t port = 0, nobody = 0;
    base::unique_fd listening = test::listening_socket(port);
    auto of = std::make_unique<memory_store>(at.context.get_executor(), *at.server->local());
    const auto relay =
        tcp_store_server::adopt(at.context.get_executor(), listening.release(), secret_of_test, nullptr,
                                std::make_unique<bootstrap::relayed_store>(
                                    at.context.get_executor(), std::move(of), bootstrap::serves_others));
    test::listening_socket(nobody).reset();
    for (const int number : {0, 1, 2}) at.store->tell(&membership::started, 0, number, 0);
    bootstrap::job near = at.job_of(0), also_near = at.job_of(1), far = at.job_of(2);
    near.store_relay = also_near.store_relay = port;
    near.master_port = also_near.master_port = nobody;
    far.store_relay = nobody;
    auto zero = std::make_unique<member>(at, near);
    auto one = std::make_unique<member>(at, also_near);
    auto two = std::make_unique<member>(at, far);
    at.run_until([&] { return zero->done && one->done && two->done; });
    for (const auto& each : {std::cref(zero), std::cref(one), std::cref(two)})
      CHECK(each.get()->failure.text.empty());
    CHECK(zero->world.size == 3);
    CHECK(one->world.id == two->world.id);
    const bootstrap::newcomer_watch of_zero(near, 0), of_two(far, 0);
    at.store->tell(&membership::started, 1, 3, 0);
    const member three(at, at.job_of(3));
    at.run_until([&] { return of_zero.count() == 1 && of_two.count() == 1; });
  }

  TEST_CASE("a rank whose wait times out gets the reason, and can come again") {
    meeting_place at(2);
    at.store->tell(&membership::started, 0, 0, 0);
    bootstrap::job hasty = at.job_of(0);
    hasty.timeout = 200ms;
    member zero(at, hasty);
    at.run_until([&] { return zero.done; });
    CHECK(zero.failure.code == errc::join_failed);
    CHECK(zero.failure.text.find("1 of at least 2 nodes is there") != std::string::npos);
    at.store->tell(&membership::started, 1, 1, 0);
    member one(at, at.job_of(1));
    member again(at, at.job_of(0));
    at.run_until([&] { return one.done && again.done; });
    CHECK(again.failure.text.empty());
    CHECK(again.world.size == 2);
  }

  TEST_CASE("a rank whose wait is cancelled can come again") {
    meeting_place at(2);
    for (const int number : {0, 1}) at.store->tell(&membership::started, number, number, 0);
    core::world_info none;
    test::failure stopped;
    scope work;
    work.spawn(test::keep_failure(member::meet(at.context.get_executor(), at.job_of(0), &none), &stopped));
    work.cancel();
    at.run_until([&] { return work.running() == 0; });
    CHECK_MESSAGE(stopped.code == errc::cancelled, stopped.text);
    member one(at, at.job_of(1));
    member again(at, at.job_of(0));
    at.run_until([&] { return one.done && again.done; });
    CHECK(again.failure.text.empty());
    CHECK(again.world.size == 2);
  }

  TEST_CASE("a minority gets its error at once, whenever it comes") {
    meeting_place at(1, bootstrap::quorum::majority);
    for (const int number : {0, 1}) at.store->tell(&membership::started, number, number, 0);
    auto zero = std::make_unique<member>(at, at.job_of(0));
    auto one = std::make_unique<member>(at, at.job_of(1));
    at.run_until([&] { return zero->done && one->done; });
    at.store->tell(&membership::started, 2, 2, 0);
    member newcomer(at, at.job_of(2));
    at.store->tell(&membership::node_lost, 1);
    member again(at, at.job_of(0));
    at.run_until([&] { return again.done && newcomer.done; });
    for (const member* m : {&again, &newcomer}) {
      CHECK(m->failure.code == errc::join_failed);
      CHECK(m->failure.text.find("1 rank is left here, and 1 may still run") != std::string::npos);
    }
    CHECK(!at.store->minority().empty());
  }

  TEST_CASE(
      "another launcher takes over: waiting ranks come again, and the one before decides nothing more") {
    meeting_place at(1);
    for (const int number : {0, 1, 2}) at.store->tell(&membership::started, number, number, 0);
    std::vector<std::unique_ptr<member>> first;
    for (const int number : {0, 1, 2}) first.push_back(std::make_unique<member>(at, at.job_of(number)));
    at.run_until([&] { return std::ranges::all_of(first, &member::done); });
    at.store->tell(&membership::started, 3, 3, 0);
    at.store->tell(&membership::node_ended, 0);
    // One member has come, and a newcomer whose arrival only the launcher before knows.
    member one(at, at.job_of(1)), three(at, at.job_of(3));
    for (int i = 0; i < 20; ++i) at.context.run_one_for(10ms);
    CHECK(!one.done);

    bootstrap::elastic_store next(at.context.get_executor(), at.server->local(), 1, bootstrap::quorum::none,
                                  [](const std::string& why) { FAIL(why); });
    test::run_task(at.context, next.take_over(50s));
    next.tell(&membership::started, 1, 1, 0);
    next.tell(&membership::started, 2, 2, 0);
    next.tell(&membership::started, 3, 3, 0);
    next.tell(&membership::node_ended, membership::unknown_node);
    next.serve();
    for (int i = 0; i < 20; ++i) at.context.run_one_for(10ms);
    CHECK(!one.done);  // rank 2 of the world that runs is still missing
    const bootstrap::newcomer_watch of_two(at.job_of(2), first[2]->world.epoch);
    at.run_until([&] { return of_two.count() == 1; });
    member two(at, at.job_of(2));
    at.run_until([&] { return one.done && two.done && three.done; });
    for (const member* m : {&one, &two, &three}) {
      CHECK_MESSAGE(m->failure.text.empty(), m->failure.text);
      CHECK(m->world.size == 3);
      CHECK(m->world.epoch == 2);
      CHECK(m->world.id == one.world.id);
    }
    CHECK(one.world.rank == 0);
    CHECK(two.world.rank == 1);
    CHECK(three.world.rank == 2);

    // The launcher before holds all of its ranks for dead but one that comes to it.
    CHECK(at.lost.empty());
    at.store->tell(&membership::node_ended, 2);
    at.store->tell(&membership::node_ended, 3);
    at.store->tell(&membership::came, membership::arrival{1, 0, 99, {}});
    at.run_until([&] { return !at.lost.empty(); });
    CHECK(at.lost.find("another launcher coordinates the job") != std::string::npos);
  }

  TEST_CASE("a launcher that takes over before there was a world lets the ranks come again") {
    meeting_place at(1);
    at.store->tell(&membership::started, 0, 0, 0);
    at.store->tell(&membership::started, 1, 1, 0);
    member one(at, at.job_of(1));
    for (int i = 0; i < 20; ++i) at.context.run_one_for(10ms);
    at.store.reset();
    bootstrap::elastic_store next(at.context.get_executor(), at.server->local(), 1, bootstrap::quorum::none,
                                  [](const std::string& why) { FAIL(why); });
    test::run_task(at.context, next.take_over(50s));
    next.tell(&membership::started, 1, 1, 0);
    next.serve();
    at.run_until([&] { return one.done; });
    CHECK_MESSAGE(one.failure.text.empty(), one.failure.text);
    CHECK(one.world.size == 1);
  }

  TEST_CASE("records of other versions have no effect") {
    meeting_place at(1);
    at.store->tell(&membership::started, 0, 0, 0);
    const bootstrap::job who = at.job_of(0);
    const auto write = [](boost::asio::any_io_executor executor, bootstrap::job as) -> task<> {
      const std::unique_ptr<store> through =
          co_await bootstrap::store_of_rank_0(executor, as, core::deadline_after(40s));
      co_await through->set("arrivals/0", "nonsense");
      co_await through->append("arrivals/0", "\narrival 1 0 0\nno record");
      co_await through->append("arrivals/0", "\narrival 2 7 0\n");
    };
    test::run_task(at.context, write(at.context.get_executor(), who));
    member zero(at, who);
    at.run_until([&] { return zero.done; });
    CHECK(zero.failure.text.empty());
    CHECK(zero.world.size == 1);
  }

  TEST_CASE("when the launcher ends, waiting ranks get an error") {
    meeting_place at(2);
    at.store->tell(&membership::started, 0, 0, 0);
    member zero(at, at.job_of(0));
    for (int i = 0; i < 20; ++i) at.context.run_one_for(10ms);
    CHECK(!zero.done);
    at.store.reset();
    at.server.reset();
    at.run_until([&] { return zero.done; });
    CHECK(zero.failure.code == errc::join_failed);
    CHECK(zero.failure.text.find("tutti-run of node 0") != std::string::npos);
  }
}
