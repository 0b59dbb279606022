// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/stored_records.hpp"

#include "bootstrap/elastic_store.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/watched_store.hpp"
#include "core/running_task.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using bootstrap::job;
using bootstrap::membership;
using bootstrap::stored_records;
using test::failure;
using test::run_task;
using test::watched_store;

namespace {

core::endpoint_record record_of(int rank, int ranks_of_host) {
  core::endpoint_record record;
  record.rank = record.number = rank;
  record.pid = 1000 + rank;
  record.host = record.host_id = "host" + std::to_string(rank / ranks_of_host);
  record.tcp_endpoint = "10.0.0.1:" + std::to_string(1 + rank);
  return record;
}

struct published {
  explicit published(std::vector<core::endpoint_record> all) : table(bootstrap::make_table(77, all, 0)) {
    size = static_cast<int>(all.size());
    run_task(context, bootstrap::publish_records(contents, table, std::move(all), 10s));
  }
  static task<std::unique_ptr<store>> open(published* self) {
    ++self->opened;
    if (self->refuses) throw error(errc::join_failed, "nobody listens");
    co_return std::make_unique<watched_store>(self->context.get_executor(), self->contents, self->by);
  }
  core::peer_records records(std::uint64_t world = 77) {
    core::peer_records made(table.kinds, table.kind_of);
    made.set_source(std::make_shared<stored_records>(context.get_executor(), world,
                                                     core::host_map(table.hosts, size), "",
                                                     [this](core::time_point) { return open(this); }));
    return made;
  }
  failure obtain(const core::peer_records& in, int rank, std::chrono::milliseconds within = 10s) {
    return test::failure_of([&] { run_task(context, in.obtain(rank, core::deadline_after(within))); });
  }

  boost::asio::io_context context;
  memory_store contents{context.get_executor()};
  bootstrap::peer_table table;
  int size = 0;
  watched_store::watch by;
  int opened = 0;
  bool refuses = false;
};

std::vector<core::endpoint_record> all_of(int ranks, int ranks_of_host) {
  std::vector<core::endpoint_record> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(record_of(rank, ranks_of_host));
  return all;
}

}  // namespace

TEST_SUITE("bootstrap/stored_records") {
  TEST_CASE("a rank asks once for the records of a host, and keeps them") {
    published at(all_of(8, 2));
    const core::peer_records mine = at.records();
    CHECK(mine.find(5) == nullptr);
    CHECK(at.obtain(mine, 5).code == errc::success);
    REQUIRE(mine.find(5) != nullptr);
    CHECK(mine.find(5)->pid == 1005);
    CHECK(mine.find(4)->tcp_endpoint == record_of(4, 2).tcp_endpoint);
    CHECK(mine.size() == 2);
    CHECK(at.obtain(mine, 4).code == errc::success);
    CHECK(at.by.requests == 1);
    CHECK(at.opened == 1);
  }

  TEST_CASE("those that are wanted at once are asked for at once, each host once") {
    published at(all_of(8, 2));
    const core::peer_records mine = at.records();
    std::deque<core::running_task> asking;
    for (const int rank : {6, 7, 2, 6})
      asking.emplace_back().start(mine.obtain(rank, core::deadline_after(10s)));
    test::run_until(at.context, [&] { return mine.size() == 4; });
    CHECK(at.by.requests == 2);
    CHECK(at.opened == 1);
    for (const int rank : {2, 3, 6, 7}) CHECK(mine.find(rank) != nullptr);
  }

  TEST_CASE("one that gives up leaves the others their answer") {
    published at(all_of(8, 2));
    const core::peer_records mine = at.records();
    core::running_task first, second;
    at.by.silent = true;
    first.start(mine.obtain(6, core::deadline_after(10s)));
    second.start(mine.obtain(7, core::deadline_after(10s)));
    test::run_until(at.context, [&] { return at.by.requests == 1; });
    CHECK_FALSE(mine.close_source());
    at.by.silent = false;
    first.stop();
    test::run_until(at.context, [&] { return mine.size() == 2; });
    CHECK(at.by.requests == 2);
    CHECK(mine.close_source());
    CHECK(at.obtain(mine, 0).says("the store with its address has gone"));
  }

  TEST_CASE("the wait is bounded, whatever does not answer") {
    published at(all_of(8, 2));
    const core::peer_records mine = at.records();
    at.by.silent = true;
    CHECK(at.obtain(mine, 3, 50ms).code == errc::timed_out);
    core::running_task first;
    first.start(mine.obtain(6, core::deadline_after(10s)));
    CHECK(at.obtain(mine, 7, 50ms).code == errc::timed_out);
  }

  TEST_CASE("a store whose connection has broken is opened again, once") {
    published at(all_of(8, 2));
    const core::peer_records mine = at.records();
    CHECK(at.obtain(mine, 0).code == errc::success);
    at.by.broken = true;
    const failure f = at.obtain(mine, 2);
    CHECK(f.code == errc::peer_failed);
    CHECK(at.opened == 2);
    at.refuses = true;
    CHECK_MESSAGE(at.obtain(mine, 2).says("out of reach: nobody listens"), f.text);
    at.refuses = at.by.broken = false;
    CHECK(at.obtain(mine, 2).code == errc::success);
  }

  TEST_CASE("records of another world, and of one that has gone, are none") {
    published at(all_of(8, 2));
    // A stale cache: the key of world 78 has what world 77 has written.
    const std::string old = run_task(at.context, at.contents.get("records/4d/1", 10s));
    run_task(at.context, at.contents.set("records/4e/1", old, 10s));
    const core::peer_records next = at.records(78);
    failure f = at.obtain(next, 2);
    CHECK(f.code == errc::peer_failed);
    CHECK_MESSAGE(f.says("another world"), f.text);
    CHECK(next.size() == 0);

    run_task(at.context, bootstrap::remove_records(at.contents, at.table, 10s));
    CHECK(run_task(at.context, at.contents.count("records/4d/", 10s)) == 0);
    f = at.obtain(at.records(), 2);
    CHECK(f.code == errc::peer_failed);
    CHECK_MESSAGE(f.says("the ranks have met again"), f.text);
  }

  TEST_CASE("ranks of a large world meet, and know their host") {
    constexpr int ranks = 6;
    boost::asio::io_context context;
    memory_store contents(context.get_executor());
    std::vector<watched_store::watch> by(ranks);
    std::vector<core::world_info> worlds(ranks);
    std::deque<watched_store> stores;
    std::deque<core::running_task> meeting;
    const auto meet = [](store* through, job who, core::world_info* into) -> task<> {
      *into =
          co_await bootstrap::meet(*through, who, record_of(who.rank, 2), core::deadline_after(who.timeout));
    };
    for (int rank = 0; rank < ranks; ++rank) {
      job who;
      who.rank = rank;
      who.world_size = ranks;
      who.timeout = 30s;
      who.records_at_once = ranks - 1;
      stores.emplace_back(context.get_executor(), contents, by[static_cast<std::size_t>(rank)]);
      meeting.emplace_back().start(meet(&stores.back(), who, &worlds[static_cast<std::size_t>(rank)]));
    }
    test::run_until(context, [&] {
      return std::ranges::all_of(worlds, [](const core::world_info& w) { return w.peers.size() > 0; });
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const core::world_info& w = worlds[static_cast<std::size_t>(rank)];
      CHECK(w.id == worlds[0].id);
      CHECK(w.size == ranks);
      CHECK(w.peers.size() == 2);
      CHECK(w.peers.find(rank) != nullptr);
      CHECK(w.peers.find(rank ^ 1) != nullptr);
      CHECK(w.hosts.hosts() == 3);
      CHECK(w.hosts.host_of(rank) == rank / 2);
      CHECK(by[static_cast<std::size_t>(rank)].requests == (rank == ranks - 1 ? 7 + 3 : 6));
    }
  }
}

// ---- where nodes come and go ----

namespace {

struct elastic_world {
  static constexpr int ranks = bootstrap::most_records_at_once + 4, ranks_of_node = 4;

  elastic_world() {
    launcher.emplace(context.get_executor(), std::make_unique<memory_store>(context.get_executor(), contents),
                     1, bootstrap::quorum::none, [](const std::string& why) { FAIL(why); });
    launcher->serve();
    for (int number = 0; number < ranks; ++number)
      launcher->tell(&membership::started, number / ranks_of_node, number, 0);
  }

  static task<> meet(store* through, int number, int start, core::world_info* into) {
    job who;
    who.rank = number;
    who.restarts = start;
    who.newcomer = start > 0;
    who.timeout = 60s;
    core::platform& time = core::platform::real();
    core::endpoint_record mine = record_of(number, ranks_of_node);
    mine.pid += 10'000 * start;
    *into = co_await bootstrap::meet_through(*through, who, mine, time, time.now() + who.timeout);
  }
  std::vector<core::world_info> meet_all(int newest, int start_of_newest) {
    std::vector<core::world_info> worlds(ranks);
    std::deque<core::running_task> meeting;
    for (int i = 0; i < ranks; ++i) {
      const int number = (newest + i) % ranks;
      meeting.emplace_back().start(meet(&contents, number, number == newest ? start_of_newest : 0,
                                        &worlds[static_cast<std::size_t>(number)]));
    }
    test::run_until(context, [&] {
      return std::ranges::all_of(worlds, [](const core::world_info& w) { return w.peers.size() > 0; });
    });
    return worlds;
  }

  boost::asio::io_context context;
  memory_store contents{context.get_executor()};
  std::optional<bootstrap::elastic_store> launcher;
};

}  // namespace

TEST_SUITE("bootstrap/stored_records") {
  TEST_CASE("ranks of a large world that grows and shrinks know their place and their node") {
    elastic_world cluster;
    const int last = elastic_world::ranks - 1;
    const std::vector<core::world_info> first = cluster.meet_all(last, 0);
    for (int number = 0; number <= last; ++number) {
      const core::world_info& w = first[static_cast<std::size_t>(number)];
      REQUIRE(w.rank == number);
      REQUIRE(w.id == first[0].id);
      REQUIRE(w.peers.size() == elastic_world::ranks_of_node);
      REQUIRE(w.record(number).pid == 1000 + number);
    }
    CHECK(run_task(cluster.context, cluster.contents.count("records/", 10s)) ==
          elastic_world::ranks / elastic_world::ranks_of_node);

    // A rank in the middle dies; its successor comes last in the world that follows, on the same node.
    constexpr int dead = 9;
    cluster.launcher->tell(&membership::ended, dead, 0, false);
    cluster.launcher->tell(&membership::started, dead / elastic_world::ranks_of_node, dead, 1);
    const std::vector<core::world_info> second = cluster.meet_all(dead, 1);
    for (int number = 0; number <= last; ++number) {
      const core::world_info& w = second[static_cast<std::size_t>(number)];
      REQUIRE(w.epoch == 1);
      REQUIRE(w.id != first[0].id);
      REQUIRE(w.rank == (number == dead ? last : number - (number > dead ? 1 : 0)));
      REQUIRE(w.record(w.rank).pid == (number == dead ? 11'009 : 1000 + number));
    }
    CHECK(second[8].peers.find(last) != nullptr);  // they share the node
    CHECK(second[8].peers.find(last)->pid == 11'009);
    CHECK(second[12].peers.find(last) == nullptr);
    // The last world's records have gone, so that none of its ranks meets one of the next.
    core::peer_records stale = first[20].peers;
    stale.set_source(std::make_shared<stored_records>(
        cluster.context.get_executor(), first[20].id, first[20].hosts, "", nullptr,
        std::make_unique<memory_store>(cluster.context.get_executor(), cluster.contents)));
    const failure f =
        test::failure_of([&] { run_task(cluster.context, stale.obtain(dead, core::deadline_after(10s))); });
    CHECK_MESSAGE(f.says("the ranks have met again"), f.text);

    // Another launcher takes over, and knows who is in.
    bootstrap::elastic_store next(
        cluster.context.get_executor(),
        std::make_unique<memory_store>(cluster.context.get_executor(), cluster.contents), 1,
        bootstrap::quorum::none, [](const std::string& why) { FAIL(why); });
    run_task(cluster.context, next.take_over(50s));
    for (int number = 0; number <= last; ++number)
      next.tell(&membership::started, number / elastic_world::ranks_of_node, number, number == dead ? 1 : 0);
    next.serve();
    const std::vector<core::world_info> third = cluster.meet_all(dead, 1);
    for (int number = 0; number <= last; ++number)
      REQUIRE(third[static_cast<std::size_t>(number)].rank == second[static_cast<std::size_t>(number)].rank);
  }
}
