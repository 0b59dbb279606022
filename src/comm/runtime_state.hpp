// SPDX-License-Identifier: Apache-2.0
// runtime_state: the state behind tutti::runtime: the loop, the worlds of this rank, and the order of joining
// and leaving.
#pragma once

#include "bootstrap/environment.hpp"
#include "comm/world.hpp"
#include "core/loop.hpp"
#include "core/running_task.hpp"

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <tutti/communicator.hpp>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::comm {

// For a process that is a rank and nothing else: an end for want of memory says so, and SIGUSR1 explains what the
// rank waits for. Does nothing the second time.
void claim_process() noexcept;

class runtime_state final : world_owner {
 public:
  explicit runtime_state(boost::asio::io_context& context, core::platform& from = core::platform::real());
  ~runtime_state() { close(); }
  // Destroys `ending`. During a turn of its loop, its memory stays until the end of that turn.
  static void end(std::unique_ptr<runtime_state> ending) noexcept;

  // For a coroutine that joins: throws errc::shut_down if the runtime has ended meanwhile.
  class lifetime {
   public:
    explicit lifetime(const runtime_state& of) noexcept : self_(of.self_) {}
    void check() const;

   private:
    std::weak_ptr<runtime_state*> self_;
  };

  core::loop& loop() noexcept { return loop_; }

  // Joins the world of `job`: through a store of the program, or, if that is null, where the job's ranks meet.
  // `server` is that of a rank 0 that serves the store of its job, otherwise null.
  task<communicator> join(bootstrap::job job, store* through, std::shared_ptr<tcp_store_server> server);
  // Joins a world whose ranks meet in a store of the program.
  task<communicator> join(init_options options, store& through) override;
  // Joins the world of all processes of this MPI job.
  task<communicator> join_mpi(bootstrap::job job);
  // Enters a world that has been formed; `ways` reach all of its ranks.
  communicator enter(core::world_info info, std::vector<std::unique_ptr<transport::transport>> ways,
                     std::shared_ptr<tcp_store_server> server);
  // Runs the io_context until `main` has ended and all worlds have been left.
  void run_to_end(task<> main);

  // The same in steps, for callers that run the loop themselves: starts main from the io_context ...
  void start(task<> main);
  // ... tells whether all has ended ...
  bool at_end() const noexcept { return main_ended_ && leaving_ == 0; }
  // ... and how: null means normally.
  const std::exception_ptr& failure() const noexcept { return main_failure_; }
  // Destroys main at the point where it waits.
  void stop() noexcept {
    first_step_.reset();
    main_.stop();
  }
  // The worlds of this rank, including those being left.
  const std::vector<std::unique_ptr<world>>& worlds() const noexcept { return worlds_; }

 private:
  // world_owner
  void idle(world& w) noexcept override;
  task<communicator> meet_again(world& old) override;

  void close() noexcept;
  // Calls f(*this) from the io_context, unless this has gone by then.
  template <class F>
  void later(F f);
  task<> leave(world* w, core::time_point by);
  void tell() noexcept;
  task<> flush_and_cut();
  void check_end() noexcept;

  task<communicator> join_next_elastic(world* old, bootstrap::job job);

  core::loop loop_;
  std::vector<std::unique_ptr<world>> worlds_;
  std::shared_ptr<tcp_store_server> epoch_server_;  // serves all epochs, on rank 0
  core::background_tasks tasks_;
  std::optional<task<>> first_step_;  // main before it has started
  core::running_task main_;
  std::exception_ptr main_failure_;
  std::shared_ptr<runtime_state*> self_ = std::make_shared<runtime_state*>(this);  // null when closed
  std::uint64_t runs_ = 0;  // counts calls of start(): handlers of an earlier one do nothing
  int leaving_ = 0;
  bool running_ = false;
  bool main_ended_ = false;
  bool failing_ = false;  // main has thrown: the worlds are cut, not left in order
};

}  // namespace tutti::comm
