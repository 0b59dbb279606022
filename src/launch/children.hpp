// SPDX-License-Identifier: Apache-2.0
// children: the processes of this node's ranks, from their start to the end of the last process they started.
//
// The launcher is a child subreaper: a dead rank's processes become the launcher's children. So it knows when
// a process group is empty, and never signals a number that the kernel may have reused.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "launch/guardian.hpp"
#include "launch/node_messages.hpp"
#include "launch/process.hpp"

namespace tutti::launch {

class children {
 public:
  // `ended` is called for each rank when it has ended, in the order of the deaths as far as the kernel tells
  // it. `changed` is called after that, and whenever a group has become empty. Both come from the loop.
  struct handlers {
    std::function<void(outcome)> ended;
    std::function<void()> changed;
  };
  children(boost::asio::io_context& loop, handlers to);

  // Starts a process. Throws std::system_error if none can be made.
  pid_t start(int rank, const process_spec& spec);
  // Forgets all children, also those that SIGKILL has not ended, and prepares another start of the ranks.
  void clear();
  // Call it at SIGCHLD.
  void reap();

  // Signals the process groups of all ranks, also of ended ranks with processes left, except that of the
  // rank's process `but_for`.
  void signal_all(int signal, pid_t but_for = -1) noexcept;
  void signal_one(pid_t pid, int signal) noexcept;
  // Kills the remaining processes of an ended rank's group.
  void kill_rest(pid_t pid) noexcept;
  bool all_ended() const;
  bool all_gone() const;  // and no process of their groups is left
  std::vector<int> running() const;
  // Ranks that have been stopped, or continued, since the last call, in order.
  std::vector<rank_stopped> halts();
  pid_t only_group() const { return all_.empty() ? -1 : all_.front()->pid; }

 private:
  struct child {
    int rank;
    pid_t pid;
    std::optional<boost::asio::posix::stream_descriptor> death;
    outcome end{};
    bool reaped = false;
    bool announced = false;
    bool group_empty = false;
    int asked_with = 0;  // the last signal sent to it that asks for an end
  };

  void collect_dead();
  void check_groups();
  void announce(child& c);
  static void signal(child& c, int signal) noexcept;

  boost::asio::io_context& loop_;
  handlers to_;
  guardian guardian_;
  exec_reports reports_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<child>> all_;
  bool killed_ = false;  // SIGKILL was sent
};

}  // namespace tutti::launch
