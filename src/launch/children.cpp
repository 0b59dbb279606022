// SPDX-License-Identifier: Apache-2.0
#include "launch/children.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launch/signals.hpp"

namespace tutti::launch {

children::children(boost::asio::io_context& loop, handlers to) : loop_(loop), to_(std::move(to)) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

pid_t children::start(int rank, const process_spec& spec) {
  process started = spawn(spec, guardian_, reports_);
  all_.push_back(std::make_unique<child>(child{rank, started.pid, std::nullopt}));
  child& c = *all_.back();
  if (!started.pidfd) return c.pid;
  // Deaths are taken from here rather than from waitid(), which returns the dead in the order of their birth.
  c.death.emplace(loop_);
  c.death->assign(started.pidfd.get());
  started.pidfd.release();
  c.death->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, &c](const boost::system::error_code& cancelled) {
                        if (cancelled) return;  // by clear(): the child is no longer in the list
                        collect_dead();
                        announce(c);
                        to_.changed();
                      });
  return c.pid;
}

void children::clear() {
  all_.clear();
  killed_ = false;
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
    const auto is_dead = [&](const auto& c) { return c->pid == info.si_pid && !c->reaped; };
    const auto found = std::ranges::find_if(all_, is_dead);
    if (found == all_.end()) continue;  // left behind by a rank
    child& c = **found;
    c.reaped = true;
    c.end.rank = c.rank;
    c.end.pid = c.pid;
    c.end.exit_code = info.si_code == CLD_EXITED ? info.si_status : 0;
    c.end.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    c.end.core_dumped = info.si_code == CLD_DUMPED;
    c.end.asked_with = c.asked_with;
    c.end.killed = killed_;
    c.end.after = std::chrono::duration_cast<std::chrono::milliseconds>(now - started_);
  }
  for (const exec_failure& failure : reports_.collect())
    for (const auto& c : all_)
      if (c->pid == failure.pid) c->end.exec_error = failure.error;
  check_groups();
}

void children::check_groups() {
  for (const auto& c : all_) {
    if (!c->reaped || c->group_empty) continue;
    siginfo_t info{};
    c->group_empty = ::waitid(P_PGID, static_cast<id_t>(c->pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 &&
                     errno == ECHILD;
    if (c->group_empty) guardian_.forget(c->pid);
  }
}

void children::announce(child& c) {
  if (std::exchange(c.announced, true)) return;
  c.death.reset();
  to_.ended(c.end);
}

void children::signal(child& c, int signal) noexcept {
  if (ends_job(signal)) c.asked_with = signal;
  if (!c.group_empty) ::kill(-c.pid, signal);
}

void children::signal_all(int signal, pid_t but_for) noexcept {
  if (signal == SIGKILL) killed_ = true;
  for (const auto& c : all_)
    if (c->pid != but_for) children::signal(*c, signal);
}

void children::signal_one(pid_t pid, int signal) noexcept {
  for (const auto& c : all_)
    if (c->pid == pid) children::signal(*c, signal);
}

void children::kill_rest(pid_t pid) noexcept {
  for (const auto& c : all_)
    if (c->pid == pid && c->reaped && !c->group_empty) ::kill(-pid, SIGKILL);
}

bool children::all_ended() const {
  return std::ranges::all_of(all_, [](const auto& c) { return c->announced; });
}

bool children::all_gone() const {
  return std::ranges::all_of(all_, [](const auto& c) { return c->announced && c->group_empty; });
}

std::vector<int> children::running() const {
  std::vector<int> ranks;
  for (const auto& c : all_)
    if (!c->announced) ranks.push_back(c->rank);
  return ranks;
}

std::vector<rank_stopped> children::halts() {
  std::vector<rank_stopped> found;
  for (const auto& c : all_) {
    siginfo_t info{};
    while (!c->reaped &&
           ::waitid(P_PID, static_cast<id_t>(c->pid), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
      found.push_back({c->rank, c->pid, info.si_code != CLD_CONTINUED});
      info = siginfo_t{};
    }
  }
  return found;
}

}  // namespace tutti::launch
