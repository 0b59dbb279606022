// SPDX-License-Identifier: Apache-2.0
#include "launch/children.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/signals_blocked.hpp"

namespace tutti::launch {
namespace {

// ---- signals ----

constexpr int of_writing[] = {SIGPIPE, SIGTTOU, SIGXFSZ};
struct sigaction earlier[std::size(of_writing)];

void restore_signals_of_writing() noexcept {
  for (std::size_t i = 0; i < std::size(of_writing); ++i) ::sigaction(of_writing[i], &earlier[i], nullptr);
}

// In a child between fork and exec, with all signals blocked: undoes signals_of_writing_ignored and every handler.
void restore_signals_for_program(const sigset_t& mask) noexcept {
  restore_signals_of_writing();
  // exec itself resets handlers, but a signal that is unblocked before it must not run one here: the handler
  // writes to a pipe that the launcher reads.
  struct sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    struct sigaction now{};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
      ::sigaction(signal, &by_default, nullptr);
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

// ---- the guardian ----

// The protocol: one pid_t per message, in a single write that a pipe keeps whole. A positive number is a
// group to watch, a negative one a group to forget. The end of the pipe is the end of the launcher.

void close_all_but(int fd) {
  if (fd > 0) ::close_range(0, static_cast<unsigned>(fd) - 1, 0);
  ::close_range(static_cast<unsigned>(fd) + 1, UINT_MAX, 0);
}

[[noreturn]] void run_guardian(int pipe) {
  ::prctl(PR_SET_NAME, "tutti-guardian");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  // If held open, the launcher's standard output would keep $(tutti-run ...) waiting, and its directory a
  // mount busy.
  close_all_but(pipe);
  [[maybe_unused]] const int ignored = ::chdir("/");

  std::vector<pid_t> groups;
  for (;;) {
    pid_t message = 0;
    const ssize_t bytes = ::read(pipe, &message, sizeof message);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    if (message > 0)
      groups.push_back(message);
    else
      std::erase(groups, -message);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

// ---- a rank ----

// Why a program did not start, written by the child that was to become it.
struct exec_failure {
  pid_t pid;
  int error;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Throws std::system_error if no process can be made. Only `reports` tells whether the program started.
pid_t spawn(const process_spec& spec, const guardian& guard, int reports) {
  const std::vector<char*> argv = pointers(spec.arguments), envp = pointers(spec.environment);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : spec.cores)
    if (core < CPU_SETSIZE) CPU_SET(core, &cores);
  const int streams[] = {spec.input, spec.output, spec.error};
  const pid_t launcher = ::getpid();
  const base::signals_blocked signals;
  const pid_t pid = ::fork();
  if (pid == 0) {  // only async-signal-safe calls, on data prepared above
    const pid_t self = ::getpid();
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(0);  // it died before the line above could report it
    guard.watch(self);
    if (spec.in_foreground) ::tcsetpgrp(STDIN_FILENO, self);
    bool ready = true;
    for (int stream = 0; stream < 3 && ready; ++stream)
      ready = streams[stream] < 0 || ::dup2(streams[stream], stream) >= 0;
    if (ready) {
      for (const int kept : {spec.inherited, spec.records})
        if (kept >= 0) ::fcntl(kept, F_SETFD, 0);
      if (spec.descriptor_limit) ::setrlimit(RLIMIT_NOFILE, &*spec.descriptor_limit);
      if (CPU_COUNT(&cores) > 0) ::sched_setaffinity(0, sizeof cores, &cores);
      restore_signals_for_program(signals.before());
      ::execve(spec.path.c_str(), argv.data(), envp.data());
    }
    const exec_failure failure{self, errno};
    [[maybe_unused]] const ssize_t written = ::write(reports, &failure, sizeof failure);
    ::_exit(failure.error == ENOENT ? 127 : 126);
  }
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
  // Done here as well as in the child, so that the group exists when this function returns, whichever comes
  // first.
  ::setpgid(pid, pid);
  return pid;
}

}  // namespace

bool ignored(int signal) noexcept {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
         now.sa_handler == SIG_IGN;
}

signals_of_writing_ignored::signals_of_writing_ignored() noexcept {
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  for (std::size_t i = 0; i < std::size(of_writing); ++i) ::sigaction(of_writing[i], &ignore, &earlier[i]);
}

signals_of_writing_ignored::~signals_of_writing_ignored() { restore_signals_of_writing(); }

void make_pipe(base::unique_fd& reader, base::unique_fd& writer, int flags) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | flags) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  reader.reset(ends[0]);
  writer.reset(ends[1]);
}

guardian::guardian() {
  base::unique_fd reader;
  make_pipe(reader, pipe_);
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    pipe_.reset();
    run_guardian(reader.get());
  }
  // Signals for the launcher's process group or terminal do not reach the guardian from here on.
  ::setpgid(pid_, pid_);
}

guardian::~guardian() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void guardian::tell(pid_t message) const noexcept {
  // The death of the guardian is no reason to end the job: the ranks still have their PDEATHSIG.
  base::write_all(pipe_.get(), {reinterpret_cast<const char*>(&message), sizeof message});
}

children::children(boost::asio::io_context& loop, handlers to) : loop_(loop), to_(std::move(to)) {
  make_pipe(exec_failures_, exec_failures_writer_, O_NONBLOCK);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

pid_t children::start(int rank, const process_spec& spec) {
  const pid_t pid = spawn(spec, guardian_, exec_failures_writer_.get());
  child& c = *all_.emplace_back(std::make_unique<child>(child{{.rank = rank, .pid = pid}}));
  base::unique_fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return pid;  // the kernel has none (before 5.3)
  // Deaths are taken from here rather than from waitid(), which returns the dead in the order of their birth.
  c.death.emplace(loop_, pidfd.get());
  pidfd.release();
  c.death->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, pid](const boost::system::error_code& cancelled) {
                        if (cancelled) return;
                        collect_dead();
                        // Not in the list after clear(), which this handler may have been queued before.
                        const auto is_this = [pid](const auto& c) { return c->end.pid == pid && c->reaped; };
                        const auto found = std::ranges::find_if(all_, is_this);
                        if (found == all_.end()) return;
                        announce(**found);
                        to_.changed();
                      });
  return pid;
}

void children::clear() {
  all_.clear();
  started_ = std::chrono::steady_clock::now();
}

void children::reap() {
  collect_dead();
  for (const auto& c : all_)
    if (c->reaped && !c->death) announce(*c);
  to_.changed();
}

void children::collect_dead() {
  const auto now = std::chrono::steady_clock::now();
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) break;
    const auto is_dead = [&](const auto& c) { return c->end.pid == info.si_pid && !c->reaped; };
    const auto found = std::ranges::find_if(all_, is_dead);
    if (found == all_.end()) continue;  // left behind by a rank
    child& c = **found;
    c.reaped = true;
    c.end.exit_code = info.si_code == CLD_EXITED ? info.si_status : 0;
    c.end.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    c.end.core_dumped = info.si_code == CLD_DUMPED;
    c.end.after = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  }
  // A child's report is there before its death is seen.
  exec_failure failure{};
  while (::read(exec_failures_.get(), &failure, sizeof failure) == sizeof failure)
    for (const auto& c : all_)
      if (c->end.pid == failure.pid) c->end.exec_error = failure.error;
  for (const auto& c : all_) {
    if (!c->reaped || c->group_empty) continue;
    siginfo_t info{};
    c->group_empty =
        ::waitid(P_PGID, static_cast<id_t>(c->end.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 &&
        errno == ECHILD;
    if (c->group_empty) guardian_.forget(c->end.pid);
  }
}

void children::announce(child& c) {
  if (std::exchange(c.announced, true)) return;
  c.death.reset();
  to_.ended(c.end);
}

void children::signal(child& c, int signal) noexcept {
  if (!c.reaped && ends_job(signal)) c.end.asked_with = signal;
  if (!c.reaped && signal == SIGKILL) c.end.killed = true;
  if (!c.group_empty) ::kill(-c.end.pid, signal);
}

void children::signal_all(int signal, pid_t but_for) noexcept {
  for (const auto& c : all_)
    if (c->end.pid != but_for) children::signal(*c, signal);
}

void children::signal_one(pid_t pid, int signal) noexcept {
  for (const auto& c : all_)
    if (c->end.pid == pid) children::signal(*c, signal);
}

bool children::all_gone() const {
  return std::ranges::all_of(all_, [](const auto& c) { return c->announced && c->group_empty; });
}

std::vector<int> children::running() const {
  std::vector<int> ranks;
  for (const auto& c : all_)
    if (!c->announced) ranks.push_back(c->end.rank);
  return ranks;
}

std::vector<rank_stopped> children::halts() {
  std::vector<rank_stopped> found;
  for (const auto& c : all_) {
    siginfo_t info{};
    while (!c->reaped &&
           ::waitid(P_PID, static_cast<id_t>(c->end.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
      found.push_back({c->end.rank, c->end.pid, info.si_code != CLD_CONTINUED});
      info = siginfo_t{};
    }
  }
  return found;
}

}  // namespace tutti::launch
