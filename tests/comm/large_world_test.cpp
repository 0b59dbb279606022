// SPDX-License-Identifier: Apache-2.0
// Worlds in which a rank knows at the start the records of its own host only: each way to meet, with few ranks.
#include "bootstrap/environment.hpp"
#include "comm/identity.hpp"
#include "comm/runtime_state.hpp"
#include "comm/world.hpp"
#include "support/etcd.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <tutti/extend/side_channel.hpp>
#include <tutti/runtime.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace std::chrono_literals;

namespace {

constexpr int ranks = 6;
constexpr const char* three_hosts = "a,a,b,b,c,c";

const core::world_info& info_of(const communicator& c) {
  return comm::world_of(comm::state_for(c, "test")).info();
}

task<> meets_all(communicator world) {
  const core::world_info& info = info_of(world);
  const int here = world.rank(), size = world.size();
  const int last = (here + size / 2) % size;  // on another host
  TUTTI_EXPECT(info.peers.size() == 2);
  TUTTI_EXPECT(info.hosts.hosts() == 3);
  TUTTI_EXPECT(info.describe(last) == "rank " + std::to_string(last));
  TUTTI_EXPECT(extend::identity_of(world).places[static_cast<std::size_t>(last)].pid == 0);
  int x = here + 1;
  co_await world.all_reduce(x, sum);
  TUTTI_EXPECT(x == size * (size + 1) / 2);
  for (int away = 1; away < size; ++away) {
    const int to = (here + away) % size, from = (here + size - away) % size;
    int got = -1;
    request sent = world.isend(std::span(&here, 1), to);
    co_await world.recv(std::span(&got, 1), from);
    co_await sent;
    TUTTI_EXPECT(got == from);
  }
  // A rank that was connected to asks afterwards.
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (std::cmp_less(info.peers.size(), size) && std::chrono::steady_clock::now() < until)
    co_await sleep_for(1ms);
  TUTTI_EXPECT(std::cmp_equal(info.peers.size(), size));
  TUTTI_EXPECT(info.describe(last).find("(host ") != std::string::npos);
  co_await world.barrier();
}

task<> join_and_meet(runtime& rt, bootstrap::job job, std::shared_ptr<tcp_store_server> server, bool again) {
  communicator world = co_await rt.state().join(job, nullptr, server);
  co_await meets_all(world);
  if (!again) co_return;
  world = co_await world.rejoin();
  TUTTI_EXPECT(info_of(world).epoch == 1);
  co_await meets_all(world);
}

bootstrap::job job_of(int rank, const char* transports) {
  bootstrap::job job;
  job.rank = rank;
  job.world_size = ranks;
  job.timeout = 40s;
  job.secret = "a secret for tests";
  job.records_at_once = ranks - 1;
  for (const char* each : {"shm", "tcp"})
    if (std::string(transports).find(each) != std::string::npos) job.transports.insert(each);
  return job;
}

void check(const std::vector<failure>& failures) {
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
}

void meet_at_rank_0(bool again) {
  const variable hosts("TUTTI_HOST_ID", three_hosts);
  for (const char* const transports : {"shm,tcp", "tcp"}) {
    std::promise<std::uint16_t> promise;
    const std::shared_future<std::uint16_t> port = promise.get_future().share();
    check(run_threads(ranks, [&](int rank) {
      runtime rt;
      bootstrap::job job = job_of(rank, transports);
      job.master_host = "127.0.0.1";
      job.comes_again = again;
      std::shared_ptr<tcp_store_server> server;
      if (rank == 0) {
        server = run_task(rt.context(),
                          tcp_store_server::listen(rt.get_executor(), "127.0.0.1", 0, job.secret, 20s));
        promise.set_value(server->port());
      }
      job.master_port = port.get();
      rt.run(join_and_meet(rt, job, server, again));
    }));
  }
}

}  // namespace

TEST_CASE("large world: rank 0 serves the store, until all have left") {
  const auto before = std::chrono::steady_clock::now();
  meet_at_rank_0(false);
  // Leaving waits for no timeout.
  CHECK(std::chrono::steady_clock::now() - before < 8s);
}

TEST_CASE("large world: the ranks meet again, at the same store") { meet_at_rank_0(true); }

TEST_CASE("large world: at a file, which goes with the last rank") {
  const variable hosts("TUTTI_HOST_ID", three_hosts);
  const scratch_directory scratch;
  const std::string file = (scratch.path() / "meet").string();
  check(run_threads(ranks, [&](int rank) {
    runtime rt;
    bootstrap::job job = job_of(rank, "shm,tcp");
    job.rendezvous_file = file;
    rt.run(join_and_meet(rt, job, nullptr, false));
  }));
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("large world: in etcd") {
  TUTTI_NEEDS_ETCD();
  const variable hosts("TUTTI_HOST_ID", three_hosts);
  const etcd_cluster cluster(1);
  check(run_threads(ranks, [&](int rank) {
    runtime rt;
    bootstrap::job job = job_of(rank, "shm,tcp");
    job.etcd = cluster.url("large");
    rt.run(join_and_meet(rt, job, nullptr, false));
  }));
}

TEST_CASE("large world: ranks that have no transport in common are told at the start") {
  const variable hosts("TUTTI_HOST_ID", three_hosts);
  const scratch_directory scratch;
  const std::vector<failure> failures = run_threads(ranks, [&](int rank) {
    runtime rt;
    bootstrap::job job = job_of(rank, "shm");
    job.rendezvous_file = (scratch.path() / "meet").string();
    rt.run(join_and_meet(rt, job, nullptr, false));
  });
  for (const failure& f : failures) {
    CHECK(f.code == errc::join_failed);
    CHECK_MESSAGE(f.says("have no transport in common"), f.text);
  }
}
