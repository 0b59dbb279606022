// SPDX-License-Identifier: Apache-2.0
// children: the processes of this node's ranks, from their start to the end of the last process they started.
//
// The launcher is a child subreaper: a dead rank's processes become the launcher's children. So it knows when
// a process group is empty, and never signals a number that the kernel may have reused.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/node_messages.hpp"

namespace tutti::launch {

// Throws std::system_error. Both ends are closed on exec.
void make_pipe(base::unique_fd& reader, base::unique_fd& writer, int flags = 0);

// As by nohup, or by a shell that starts the launcher in the background.
bool ignored(int signal) noexcept;
// True for signals after which the ranks get their grace period and then SIGKILL. SIGQUIT is not among them:
// the launcher then says who waits for whom, and passes it on only if it cannot.
constexpr bool ends_job(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

// The launcher writes to pipes whose readers may be gone, and to a terminal that it has lent out; programs that
// it starts get the earlier state. One instance at a time per process.
class signals_of_writing_ignored {
 public:
  signals_of_writing_ignored() noexcept;
  signals_of_writing_ignored(const signals_of_writing_ignored&) = delete;
  signals_of_writing_ignored& operator=(const signals_of_writing_ignored&) = delete;
  ~signals_of_writing_ignored();  // restores the earlier state
};

// The process of a rank: it leads a process group, and dies with the launcher.
struct process_spec {
  std::string path;  // of the executable file
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  int input = -1;  // becomes standard input, output and error; -1: the launcher's own
  int output = -1;
  int error = -1;
  // Two more descriptors that the program keeps, under their numbers.
  int inherited = -1;
  int records = -1;
  bool in_foreground = false;  // its group takes over the terminal on the launcher's standard input
  std::optional<rlimit> descriptor_limit;
  std::vector<int> cores;  // that it may use; empty: the launcher's
};

// A tiny process that outlives the launcher briefly. It sleeps in read() on a pipe whose only writer is the
// launcher. When the launcher is gone, however it died, it wakes and kills what the ranks had started. The
// ranks themselves die by PR_SET_PDEATHSIG. Their children do not inherit that, hence the guardian.
class guardian {
 public:
  // Forks: construct it before threads, descriptors or handlers that a copy should not have.
  guardian();
  guardian(const guardian&) = delete;
  guardian& operator=(const guardian&) = delete;
  // Kills the groups that were watched and not forgotten, and waits for the guardian's end.
  ~guardian();

  // Called from the child that is about to become the leader of `group`, before exec: from here on the group
  // cannot outlive the launcher. Async-signal-safe.
  void watch(pid_t group) const noexcept { tell(group); }
  // The group is empty, and its number may soon be reused.
  void forget(pid_t group) const noexcept { tell(-group); }

 private:
  void tell(pid_t message) const noexcept;

  pid_t pid_ = -1;
  base::unique_fd pipe_;
};

class children {
 public:
  // `ended` is called for each rank when it has ended, in the order of the deaths as far as the kernel tells
  // it. `changed` is called after that, and whenever a group has become empty. Both come from the loop.
  struct handlers {
    std::function<void(outcome)> ended;
    std::function<void()> changed;
  };
  children(boost::asio::io_context& loop, handlers to);

  // Starts a process. Throws std::system_error if none can be made; that its program could not be started is
  // in its outcome.
  pid_t start(int rank, const process_spec& spec);
  // Forgets all children, also those that SIGKILL has not ended, and prepares another start of the ranks.
  void clear();
  // Call it at SIGCHLD.
  void reap();

  // Signals the process groups of all ranks, also of ended ranks with processes left, except that of the
  // rank's process `but_for`.
  void signal_all(int signal, pid_t but_for = -1) noexcept;
  void signal_one(pid_t pid, int signal) noexcept;  // the group of this process of a rank
  std::vector<int> running() const;                 // the ranks that have not ended
  bool all_gone() const;                            // nor is a process of their groups left
  // Ranks that have been stopped, or continued, since the last call, in order.
  std::vector<rank_stopped> halts();
  pid_t only_group() const { return all_.empty() ? -1 : all_.front()->end.pid; }

 private:
  struct child {
    outcome end;  // its pid is also the number of its process group
    std::optional<boost::asio::posix::stream_descriptor> death = {};
    bool reaped = false;
    bool announced = false;
    bool group_empty = false;
  };

  void collect_dead();
  void announce(child& c);
  static void signal(child& c, int signal) noexcept;

  boost::asio::io_context& loop_;
  handlers to_;
  guardian guardian_;
  // By which children report a failed exec; a child that succeeds only closes its copy. Does not block.
  base::unique_fd exec_failures_;
  base::unique_fd exec_failures_writer_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<child>> all_;
};

}  // namespace tutti::launch
