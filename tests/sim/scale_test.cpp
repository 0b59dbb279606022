// SPDX-License-Identifier: Apache-2.0
// The cost of thousands of ranks: start, all_reduce, a death with the agreement after it, and rejoin.
// TUTTI_SIM_SCALE=1024,8192,65536 prints the table for these numbers of ranks (docs/scale.md).
//
// The launcher's part and each rank's requests to its store are tutti's own code, executed in sequence in
// memory. Ranks that exchange messages are simulated up to `most_simulated`; beyond that, the forecast
// computes the all_reduce.
#include "bootstrap/elastic_store.hpp"
#include "bootstrap/relayed_store.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/running_task.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <tutti/sim.hpp>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

constexpr int most_simulated = 2048;
constexpr int ranks_of_node = 8;

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// ---- the store ----

struct load {
  std::uint64_t requests = 0;
  std::uint64_t to_store = 0;    // bytes of keys and values
  std::uint64_t from_store = 0;  // of answers
};

class counting_store final : public store {
 public:
  counting_store(std::shared_ptr<store> of, load& into) : of_(std::move(of)), load_(into) {}
  std::string name() const override { return "store"; }

 private:
  task<store_answer> carry_out(store_request what) override {
    ++load_.requests;
    load_.to_store += what.key.size() + what.value.size() + what.expected.size();
    store_answer answer = co_await of_->perform(std::move(what));
    load_.from_store += answer.text.size();
    co_return std::move(answer);
  }

  const std::shared_ptr<store> of_;
  load& load_;
};

// Of all ranks, and of what their launchers ask node 0 for.
struct traffic_of_store {
  load ranks, launchers;
  double seconds = 0;  // of the processors of all
};

struct arriving {
  std::unique_ptr<counting_store> through;
  core::running_task running;
  core::world_info info;
  int* to_come = nullptr;
};

task<> arrive(arriving* a, int number, int start) {
  bootstrap::job who;
  who.rank = number;
  who.restarts = start;
  who.newcomer = start > 0;
  who.timeout = 1h;
  // As long as on a cluster.
  core::endpoint_record mine;
  mine.rank = number;
  mine.pid = 100'000 + number;
  mine.pid_space = 4026531836;
  mine.host = fmt::format("node-{:05}.cluster", number / ranks_of_node);
  mine.host_id = fmt::format("{:032x}/4026531840", number / ranks_of_node);
  mine.shm_address = fmt::format("tutti-{:016x}", number);
  mine.tcp_endpoint = fmt::format("10.{}.{}.{}:{}", number >> 16, number >> 8 & 255, number & 255, 40'000);
  mine.cpus = "ffffffffffffffff";
  core::platform& time = core::platform::real();
  a->info = co_await bootstrap::meet_through(*a->through, who, mine, time, time.now() + who.timeout);
}

// The records that the first sum needs: of the ranks a power of two away.
task<> learn_partners(arriving* a, boost::asio::any_io_executor executor, std::shared_ptr<store> of,
                      load* into) {
  const auto open = [](std::shared_ptr<store> from, load* to) -> task<std::unique_ptr<store>> {
    co_return std::make_unique<counting_store>(std::move(from), *to);
  };
  bootstrap::ask_later(a->info, executor, [=](core::time_point) { return open(of, into); }, "");
  for (int away = 1; away < a->info.size; away *= 2)
    if (const int partner = a->info.rank ^ away; partner < a->info.size)
      co_await a->info.peers.obtain(partner, core::time_point::max());
}

struct meetings {
  traffic_of_store start;
  traffic_of_store sum;    // the requests for records of the first sum after it
  traffic_of_store again;  // after one rank has died
  std::size_t met = 0;     // the others whose records a rank has then
  std::size_t memory = 0;  // bytes of what it knows of all
};

std::size_t heap_in_use() noexcept {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

meetings meet_twice(int ranks) {
  meetings made;
  boost::asio::io_context context(1);
  memory_store contents(context.get_executor());
  bootstrap::elastic_store launcher(context.get_executor(),
                                    std::make_unique<memory_store>(context.get_executor(), contents), 1,
                                    bootstrap::quorum::none, [](const std::string& why) { FAIL(why); });
  launcher.serve();
  load at_node_0;
  // By node.
  std::vector<std::shared_ptr<store>> relays;
  for (int first = 0; first < ranks; first += ranks_of_node) {
    auto of = std::make_shared<memory_store>(context.get_executor(), contents);
    auto counted = std::make_unique<counting_store>(std::move(of), at_node_0);
    relays.push_back(std::make_shared<bootstrap::relayed_store>(context.get_executor(), std::move(counted),
                                                                bootstrap::serves_others));
  }
  const auto relay_of = [&](int rank) { return relays[static_cast<std::size_t>(rank / ranks_of_node)]; };
  std::deque<arriving> all;
  const auto run = [&](int& to_come) {
    while (to_come > 0) REQUIRE(context.run_one_for(run_limit) > 0);
  };
  const auto meet = [&](traffic_of_store& into, int start_of_last) {
    int to_come = ranks;
    at_node_0 = {};
    const double before = cpu_seconds();
    all.clear();
    // The last rank first: in a running world it is the newcomer.
    for (int i = 0; i < ranks; ++i) {
      const int r = (ranks - 1 + i) % ranks;
      arriving& a = all.emplace_back();
      a.through = std::make_unique<counting_store>(relay_of(r), into.ranks);
      a.to_come = &to_come;
      a.running.start(
          arrive(&a, r, r == ranks - 1 ? start_of_last : 0),
          [](void* self, std::exception_ptr) noexcept { --*static_cast<arriving*>(self)->to_come; }, &a);
      if (context.stopped()) context.restart();
      context.poll();
    }
    run(to_come);
    into.seconds = cpu_seconds() - before;
    into.launchers = at_node_0;
    for (const arriving& a : all) REQUIRE(a.info.size == ranks);
  };
  const auto learn = [&](traffic_of_store& into) {
    const double before = cpu_seconds();
    at_node_0 = {};
    for (arriving& a : all) {
      int to_come = 1;
      a.to_come = &to_come;
      a.running.start(
          learn_partners(&a, context.get_executor(), relay_of(a.info.rank), &into.ranks),
          [](void* self, std::exception_ptr failure) noexcept {
            CHECK(!failure);
            --*static_cast<arriving*>(self)->to_come;
          },
          &a);
      run(to_come);
      const bool first = made.met == 0;
      const std::size_t with = first ? heap_in_use() : 0;  // which takes long
      if (first) made.met = a.info.peers.size() - 1;
      a.info = core::world_info();
      if (first) made.memory = with - heap_in_use();
    }
    into.seconds = cpu_seconds() - before;
    into.launchers = at_node_0;
  };
  for (int r = 0; r < ranks; ++r) launcher.tell(&bootstrap::membership::started, r / ranks_of_node, r, 0);
  meet(made.start, 0);
  learn(made.sum);
  launcher.tell(&bootstrap::membership::ended, ranks - 1, 0, false);
  launcher.tell(&bootstrap::membership::started, (ranks - 1) / ranks_of_node, ranks - 1, 1);
  meet(made.again, 1);
  return made;
}

// ---- messages ----

struct phases {
  sim::duration summed{0};
  sim::duration agreed{0};  // from the death to the end of the survivors' next sum
};

constexpr auto death_at = 1s;

task<> sum_and_survive(communicator world, bool one_dies, phases* all) {
  float x = 1;
  co_await world.all_reduce(x, sum);
  all->summed = std::max<sim::duration>(all->summed, now().time_since_epoch() - 1h * 24 * 365);
  if (!one_dies) co_return;
  co_await sleep_for(sim::duration(death_at) + 1ms - sim::duration(now().time_since_epoch() - 1h * 24 * 365));
  const auto r = co_await as_result(world.all_reduce(x, sum));
  TUTTI_EXPECT((r.error == errc::peer_failed || r.error == errc::communicator_failed));
  world = co_await world.shrink();
  x = 1;
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x == static_cast<float>(world.size()));
  all->agreed = std::max<sim::duration>(all->agreed,
                                        now().time_since_epoch() - 1h * 24 * 365 - sim::duration(death_at));
}

struct traffic {
  sim::report report;
  phases took;
  double mean = 0;  // frames of a rank
  std::uint64_t most = 0;
  int connections = 0;  // of the rank with most connections
};

traffic simulate(int ranks, bool one_dies) {
  traffic t;
  sim::options o;
  o.ranks = ranks;
  o.seed = 1;
  o.timeout = 1h;
  if (one_dies) o.faults.deaths.push_back({ranks / 2, death_at, 0});
  t.report =
      sim::run(o, [&](communicator world) { return sum_and_survive(std::move(world), one_dies, &t.took); });
  for (const sim::rank_report& one : t.report.ranks) {
    const bool is_dead = one.how == sim::ending::killed;
    CHECK_MESSAGE((one.how == sim::ending::returned || is_dead), one.text);
    t.most = std::max(t.most, one.frames);
    t.connections = std::max(t.connections, one.connections);
  }
  t.mean = static_cast<double>(t.report.frames) / ranks;
  return t;
}

std::vector<int> wanted() {
  std::vector<int> sizes;
  const char* const given = std::getenv("TUTTI_SIM_SCALE");
  for (const char* at = given; at != nullptr && *at != 0;) {
    char* end = nullptr;
    sizes.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : end;
    REQUIRE(sizes.back() > 1);
    if (*end != ',') break;
  }
  return sizes;
}

}  // namespace

TEST_CASE(
    "scale: each rank sends the same requests to the store, and gets as many bytes, for any number of "
    "ranks") {
  const meetings few = meet_twice(512), many = meet_twice(2048);
  CHECK(few.start.ranks.requests == 512 * 4);
  CHECK(many.start.ranks.requests == 2048 * 4);
  CHECK(many.again.ranks.requests == 2048 * 4);
  CHECK(many.start.ranks.from_store < 5 * few.start.ranks.from_store);
  CHECK(many.start.ranks.from_store < 2048 * 3000);
  // The first sum asks for the host of each partner elsewhere; no rank knows more than these.
  CHECK(few.sum.ranks.requests == 512 * 6);
  CHECK(many.sum.ranks.requests == 2048 * 8);
  // Two of the four are the same for all ranks of a node, and so are all those of the sum.
  CHECK(many.start.launchers.requests == 2048 * 2 + 2048 / 8 * 2);
  CHECK(many.again.launchers.requests == 2048 * 2 + 2048 / 8 * 2);
  CHECK(many.sum.launchers.requests == 2048 / 8 * 8);
  CHECK(7 * many.start.launchers.from_store < many.start.ranks.from_store);
  CHECK(many.met == 8 * (1 + 8) - 1);
  CHECK(many.memory < 80'000);
}

TEST_CASE("scale: the messages and connections of a sum, and of a death, grow logarithmically") {
  const traffic few = simulate(32, true), many = simulate(128, true);
  const traffic sums_few = simulate(32, false), sums_many = simulate(128, false);
  CHECK(sums_many.most <= sums_few.most + 8);
  CHECK(sums_many.connections <= sums_few.connections + 4);
  // With 32, all are told directly.
  const traffic more = simulate(512, true);
  CHECK(many.connections < few.connections);
  CHECK(more.connections <= many.connections + 8);
  CHECK(more.most <= many.most + 60);
}

TEST_CASE("scale: the table" * doctest::skip(std::getenv("TUTTI_SIM_SCALE") == nullptr)) {
  for (const int ranks : wanted()) {
    const meetings m = meet_twice(ranks);
    for (const auto& [what, l] :
         {std::pair("start", &m.start), std::pair("first sum", &m.sum), std::pair("rejoin", &m.again)})
      for (const auto& [whose, by] : {std::pair("ranks", &l->ranks), std::pair("launchers", &l->launchers)})
        fmt::print(
            "{:6} ranks | {:10} | by {:9}: {:.1f} requests and {:.0f} B a rank to the store, {:.0f} B back, "
            "{:.1f} MiB in all; {:.3f} s of processor\n",
            ranks, what, whose, static_cast<double>(by->requests) / ranks,
            static_cast<double>(by->to_store) / ranks, static_cast<double>(by->from_store) / ranks,
            static_cast<double>(by->to_store + by->from_store) / 1048576, l->seconds);
    fmt::print("{:6} ranks | addresses  | a rank knows {} others, in {} B\n", ranks, m.met, m.memory);
    const sim::forecast f =
        sim::compute_forecast(sim::pattern::all_reduce, algorithm::recursive_doubling, 4, ranks, {});
    fmt::print("{:6} ranks | all_reduce | {:.1f} us, {} connections (computed)\n", ranks,
               static_cast<double>(f.time.count()) / 1000, f.connections);
    if (ranks > most_simulated) continue;
    const traffic sums = simulate(ranks, false), death = simulate(ranks, true);
    fmt::print(
        "{:6} ranks | the first  | {:.1f} us, {:.1f} frames a rank, {} at most, {} connections at most, "
        "{} B of memory a rank\n",
        ranks, static_cast<double>(sums.took.summed.count()) / 1000, sums.mean, sums.most, sums.connections,
        sums.report.bytes_per_rank);
    fmt::print(
        "{:6} ranks | death      | {:.1f} ms to the next sum, {:.1f} frames a rank, {} at most, {} "
        "connections at most\n",
        ranks, static_cast<double>(death.took.agreed.count()) / 1e6, death.mean - sums.mean, death.most,
        death.connections);
  }
}
