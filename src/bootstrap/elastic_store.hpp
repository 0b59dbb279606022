// SPDX-License-Identifier: Apache-2.0
// elastic_store: where the ranks of a world that grows and shrinks meet: a store served by the launcher of
// node 0, which answers ranks in it.
#pragma once

#include "bootstrap/environment.hpp"
#include "bootstrap/membership.hpp"
#include "core/platform.hpp"
#include "core/running_task.hpp"
#include "core/world_info.hpp"

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <type_traits>
#include <vector>

namespace tutti::bootstrap {

// The launcher's side. Used on the executor's thread only.
class elastic_store {
 public:
  // In a store that the caller serves to the ranks.
  elastic_store(std::unique_ptr<memory_store> served, int least_nodes, quorum needed);
  elastic_store(const elastic_store&) = delete;
  elastic_store& operator=(const elastic_store&) = delete;

  // Tells the membership of an event, such as (&membership::node_ended, node), and answers the ranks that this
  // concerns.
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
  task<> serve();
  void take(std::string_view arrivals);
  void settle();
  void publish(membership::world next);
  void show(const char* key, const std::string& value);
  // On the contents of the store: keeps nobody waiting.
  void perform(store_operation what, std::string key, std::string value = {});
  std::optional<std::string> find(const std::string& key) const;

  std::unique_ptr<memory_store> store_;
  membership members_;
  std::vector<std::uint64_t> answered_;  // places, of the present world
  std::uint64_t told_ = 0;               // changes of the number of newcomers, in this epoch
  int newcomers_ = 0;
  std::string minority_;  // as it was first
  core::running_task serving_;
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

// The part of it behind the connection to the launcher's store; `time` is whose clock the deadline has.
task<core::world_info> meet_through(store& through, job who, core::endpoint_record mine, core::platform& time,
                                    core::time_point deadline);
// Keeps `count` at the number of newcomers while the world of this epoch runs. Ends, by an error, with the
// store.
task<> follow_newcomers(store& through, std::int64_t epoch, std::atomic<int>& count);

// Completes on every member with the same world, one more than the present one. A rank that is started while
// a world runs is taken in when that one's members come; it waits for them as long as that world runs. The
// others fail at the deadline.
//
// Errors: join_failed, with what it waited for; those of tcp_store::connect.
task<core::world_info> meet_in_elastic_store(boost::asio::any_io_executor executor, job who,
                                             core::endpoint_record mine, core::time_point deadline);

}  // namespace tutti::bootstrap
