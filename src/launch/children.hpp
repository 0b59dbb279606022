// SPDX-License-Identifier: Apache-2.0
// The processes of this node's ranks, from their start to the end of the last thing they started.
//
// The launcher is a child subreaper: what a dead rank leaves behind becomes the launcher's child. It
// therefore knows when a process group is empty, and never signals a number that the kernel may have given to
// somebody else.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "launch/guardian.hpp"
#include "launch/outcome.hpp"
#include "launch/process.hpp"

namespace tutti::launch {

class children {
 public:
  // `ended` is called for each rank when it has ended, in the order of their deaths as far as the kernel
  // tells it; `changed` after that, and whenever a group has become empty. Both come from the loop.
  struct handlers {
    std::function<void(outcome)> ended;
    std::function<void()> changed;
  };
  children(boost::asio::io_context& loop, handlers to);

  // The new process. Throws std::system_error when none can be made.
  pid_t start(int rank, const process_spec& spec);
  // Forgets all children, also those that SIGKILL has not ended, and makes ready for another start of the
  // ranks.
  void clear();
  // To be called at SIGCHLD.
  void reap();

  // To the process groups of all ranks, also of those that have ended and left something behind.
  void signal_all(int signal) noexcept;
  // What is left of a rank's group that has ended itself is killed.
  void kill_rest(pid_t pid) noexcept;
  bool all_ended() const;
  bool all_gone() const;  // and nothing of their groups is left
  std::vector<int> running() const;
  // Of the only rank: it has stopped (Ctrl-Z, or a read from a terminal that is not its own) since the last
  // call.
  bool only_one_stopped() const noexcept;
  // Ranks that have been stopped, or go on, since the last call, in order.
  struct halt {
    int rank;
    pid_t pid;
    bool stopped;
  };
  std::vector<halt> halts();
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
  };

  void collect_dead();
  void check_groups();
  void announce(child& c);

  boost::asio::io_context& loop_;
  handlers to_;
  guardian guardian_;
  exec_reports reports_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<child>> all_;
  std::unordered_map<pid_t, child*> unreaped_;
  int asked_with_ = 0;   // the last signal sent that asks for an end
  bool killed_ = false;  // SIGKILL was sent
};

}  // namespace tutti::launch
