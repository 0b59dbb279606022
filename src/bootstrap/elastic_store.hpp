// SPDX-License-Identifier: Apache-2.0
// elastic_store: where the ranks of a world that grows and shrinks meet: a store in which one launcher, the
// coordinator, answers ranks. The store is the one that node 0 serves, or one in etcd, which lives on without
// node 0.
//
// The keys world/0, world/1, … are a log of what the coordinator has decided: each is written once, by
// compare_exchange from empty. So of two launchers that both take themselves for the coordinator only one
// decides, and the other learns that it has been replaced.
#pragma once

#include "bootstrap/environment.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/peer_table.hpp"
#include "core/platform.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "core/world_info.hpp"

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <type_traits>

namespace tutti::bootstrap {

// The coordinator's side. Used on the executor's thread only.
class elastic_store {
 public:
  // In a store that the ranks reach. `failed` is called, from the loop and once, when there can be no further
  // world: the store has gone, or another launcher has taken over.
  elastic_store(boost::asio::any_io_executor executor, std::unique_ptr<store> at, int least_nodes,
                quorum needed, std::function<void(const std::string& why)> failed);
  elastic_store(const elastic_store&) = delete;
  elastic_store& operator=(const elastic_store&) = delete;

  // Takes the place of a coordinator that has died: from here on it decides nothing more, and its world is the one
  // that runs. The nodes of that world's ranks are then to be told, by membership::started, and node -1 to be told as
  // ended or lost: ranks that no node has.
  // Errors: those of the store; join_failed, if there can be no further world; timed_out.
  task<> take_over(std::chrono::milliseconds timeout);
  // Begins to answer ranks.
  void serve();

  // Tells the membership of an event, such as (&membership::node_ended, node); the ranks that this concerns are
  // answered from the loop.
  template <class R, class... P>
  R tell(R (membership::*event)(P...), std::type_identity_t<P>... about) {
    if constexpr (std::is_void_v<R>) {
      (members_.*event)(about...);
      settle();
    } else {
      const R result = (members_.*event)(about...);
      settle();
      return result;
    }
  }
  // Whether the ranks of the world have all ended, and one of them successfully: waiting ranks will not be
  // admitted.
  bool over() const { return members_.over(); }
  // Why there will be no further world for want of a quorum; empty: there may be one.
  const std::string& minority() const noexcept { return minority_; }

 private:
  void settle();
  task<> unless_it_fails(task<> work);
  task<> take_arrivals();
  void take(std::string_view arrivals);
  task<> answer_ranks();
  task<> admit();
  task<> decide(std::int64_t epoch, std::string decision);
  task<> tell_newcomers();
  task<> show(const char* key, std::string value, std::string* shown);

  const std::unique_ptr<store> store_;
  membership members_;
  const std::function<void(const std::string&)> failed_;
  std::int64_t term_ = 0;      // whose arrivals are taken
  std::int64_t running_ = -1;  // the epoch of the world that runs
  peer_table table_;           // of that world
  std::uint64_t told_ = 0;     // changes of the number of newcomers, in that world
  int newcomers_ = 0;
  std::string minority_;         // as it was first
  bool refused_ = false;         // the ranks know it
  std::string runs_, obstacle_;  // as the ranks can read them
  core::wakeup changed_;
  core::background_tasks tasks_;  // last: they use the others
};

// A rank's side: knows of newcomers as long as it lives. It has a thread of its own, because a rank may
// compute for long without a turn of its loop.
class newcomer_watch {
 public:
  newcomer_watch(job who, std::int64_t epoch);
  newcomer_watch(const newcomer_watch&) = delete;
  newcomer_watch& operator=(const newcomer_watch&) = delete;
  ~newcomer_watch();
  int count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  task<> watch(job who, std::int64_t epoch);

  std::atomic<int> count_{0};
  boost::asio::io_context context_{1};
  core::running_task watching_;
  std::thread thread_;
};

// Of the requests of ranks: whether the value that this one finds serves the other ranks of its host as well. It is
// written once, or a rank that is told of a world that has passed learns from its own place that it is not in it.
bool serves_others(const store_request& what);
// The part of it behind the connection to the store; `time` is whose clock the deadline has.
task<core::world_info> meet_through(store& through, job who, core::endpoint_record mine, core::platform& time,
                                    core::time_point deadline);
// Keeps `count` at the number of newcomers while the world of this epoch runs. Ends, by an error, with the
// store.
task<> follow_newcomers(store& through, std::int64_t epoch, std::atomic<int>& count);

// Completes on every member with the same world, of a later epoch than the present one. A rank that is started
// while a world runs is taken in when that one's members come; it waits for them as long as that world runs. The
// others fail at the deadline.
//
// Errors: join_failed, with what it waited for; those of tcp_store::connect.
task<core::world_info> meet_in_elastic_store(boost::asio::any_io_executor executor, job who,
                                             core::endpoint_record mine, core::time_point deadline);

}  // namespace tutti::bootstrap
