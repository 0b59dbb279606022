// SPDX-License-Identifier: Apache-2.0
#include "launch/process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ranges>
#include <system_error>

#include "base/env.hpp"
#include "launch/guardian.hpp"
#include "launch/signals.hpp"
#include "launch/terminal.hpp"

namespace tutti::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// What the child does between fork and exec: only async-signal-safe calls, on data prepared before the fork.
struct child_plan {
  const process_spec& spec;
  const guardian& guard;
  int reports;
  pid_t launcher;
  sigset_t mask;
  std::vector<char*> argv;
  std::vector<char*> envp;

  [[noreturn]] void carry_out() const noexcept {
    const pid_t self = ::getpid();
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(0);  // it died before the line above could report it
    guard.watch(self);
    if (spec.in_foreground) give_terminal_to(self);
    const int wanted[] = {spec.input, spec.output, spec.error};
    for (int stream = 0; stream < 3; ++stream)
      if (wanted[stream] >= 0 && ::dup2(wanted[stream], stream) < 0) give_up();
    for (const int kept : {spec.inherited, spec.records})
      if (kept >= 0) ::fcntl(kept, F_SETFD, 0);
    if (spec.descriptor_limit) ::setrlimit(RLIMIT_NOFILE, &*spec.descriptor_limit);
    restore_signals_for_program(mask);
    ::execve(spec.path.c_str(), argv.data(), envp.data());
    give_up();
  }

  [[noreturn]] void give_up() const noexcept {
    const exec_failure failure{::getpid(), errno};
    [[maybe_unused]] const ssize_t ignored = ::write(reports, &failure, sizeof failure);
    ::_exit(failure.error == ENOENT ? 127 : 126);
  }
};

int why_not_executable(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

}  // namespace

exec_reports::exec_reports() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  reader_.reset(ends[0]);
  writer_.reset(ends[1]);
}

std::vector<exec_failure> exec_reports::collect() {
  std::vector<exec_failure> failures;
  exec_failure failure{};
  while (::read(reader_.get(), &failure, sizeof failure) == sizeof failure) failures.push_back(failure);
  return failures;
}

process spawn(const process_spec& spec, const guardian& guard, const exec_reports& reports) {
  child_plan plan{
      spec, guard, reports.writer(), ::getpid(), {}, pointers(spec.arguments), pointers(spec.environment)};
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &plan.mask);
  const pid_t pid = ::fork();
  if (pid == 0) plan.carry_out();
  const int error = errno;
  // Done here as well as in the child, so that the group exists when this function returns, whichever comes
  // first.
  if (pid > 0) ::setpgid(pid, pid);
  ::pthread_sigmask(SIG_SETMASK, &plan.mask, nullptr);
  if (pid < 0) throw std::system_error(error, std::generic_category(), "fork");
  return process{pid, base::unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
}

program_search find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return {name, why_not_executable(name)};
  const std::string path = base::env_string("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  program_search best{name, ENOENT};
  for (const auto part : std::views::split(path, ':')) {
    const std::string file = (part.empty() ? "." : std::string(part.begin(), part.end())) + '/' + name;
    const program_search found{file, why_not_executable(file)};
    if (found.error == 0) return found;
    if (found.error == EACCES) best = found;  // it exists but is not permitted: says more than "not found"
  }
  return best;
}

}  // namespace tutti::launch
