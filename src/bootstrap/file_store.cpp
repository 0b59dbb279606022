// SPDX-License-Identifier: Apache-2.0
// file_store: operations on a copy of the contents, under the file's lock. A caller that waits polls for changes.
#include "base/process_state.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/store_contents.hpp"
#include "bootstrap/store_file.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <ranges>
#include <system_error>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

namespace tutti {

using bootstrap::store_contents;
using bootstrap::store_file;
using std::chrono::milliseconds;

namespace {

// A holder needs microseconds.
constexpr auto first_pause = std::chrono::microseconds(50);
constexpr auto longest_pause = milliseconds(5);
// A caller without time to wait for a key must still get the lock, to know that the key is missing.
constexpr auto lock_wait_without_timeout = milliseconds(10'000);
// Between polls of the file, which are two system calls. On a network file system they may see changes only
// under the lock, which is taken this often.
constexpr auto first_poll = milliseconds(1);
constexpr auto longest_poll = milliseconds(10);
constexpr auto longest_without_lock = milliseconds(100);

using held_lock = std::unique_lock<store_file>;

// Without the lock: not within the time. The lock itself is passed on, not a notification of it: a task may be
// destroyed between its child's end and its own next step.
task<held_lock> lock_file(boost::asio::any_io_executor executor, store_file& file,
                          core::time_point deadline) {
  core::wakeup pause(executor);
  for (core::duration next = first_pause;; next = std::min<core::duration>(2 * next, longest_pause)) {
    if (file.try_lock()) co_return held_lock(file, std::adopt_lock);
    const core::time_point now = core::clock::now();
    if (now >= deadline) co_return held_lock();
    co_await pause.wait(std::min(deadline, now + next));
  }
}

namespace fs = std::filesystem;

// The kernel lists in fdinfo the locks that were taken through the descriptor:
// "lock:	1: OFDLCK  ADVISORY  WRITE -1 00:1b:77 0 0", with the first and the last byte at the end.
bool locks_first_byte(const fs::path& fdinfo) {
  std::ifstream file(fdinfo);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("lock:") && line.ends_with(" 0 0")) return true;
  return false;
}

bool holds_lock(const fs::path& process, const fs::path& file) {
  std::error_code failed, unreadable;
  for (fs::directory_iterator fd(process / "fd", failed), end; !failed && fd != end; fd.increment(failed))
    if (fs::equivalent(fd->path(), file, unreadable) &&
        locks_first_byte(process / "fdinfo" / fd->path().filename()))
      return true;
  return false;
}

std::string description(pid_t pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return fmt::format("process {}{}{}", pid, name.empty() ? "" : fmt::format(" ({})", name),
                     base::state_of_process(pid) == base::process_state::stopped ? ", which is stopped" : "");
}

// The processes of this host that hold a lock on byte 0 of the open file, as "process 77 (python3), which is
// stopped, and process 78 (python3)". All that share the locked descriptor count; processes of other users,
// hosts and pid namespaces do not appear.
std::string lock_holders(int fd) {
  const std::string file = fmt::format("/proc/self/fd/{}", fd);
  std::vector<pid_t> holders;
  std::error_code failed;
  for (fs::directory_iterator entry("/proc", failed), end; !failed && entry != end; entry.increment(failed))
    if (const auto pid = base::to_number<pid_t>(entry->path().filename().string());
        pid && holds_lock(entry->path(), file))
      holders.push_back(*pid);
  std::ranges::sort(holders);
  return fmt::format("{}", fmt::join(holders | std::views::transform(description), " and "));
}

[[noreturn]] void throw_locked(const std::string& operation, const store_file& file, const std::string& path,
                               milliseconds timeout) {
  std::string who = lock_holders(file.descriptor());
  if (who.empty())
    who = fmt::format(
        "a process that is not visible from here; `fuser -v {}`, as root and on each host, names those that "
        "have it open",
        path);
  base::throw_error(errc::timed_out,
                    "{}: the lock of the file has been held for {} by {}; continue or end that process",
                    operation, base::duration_text(timeout), who);
}

}  // namespace

struct file_store::impl {
  impl(boost::asio::any_io_executor e, std::string p)
      : executor(std::move(e)), path(std::move(p)), file(path) {}

  // Takes the lock and updates the contents.
  task<held_lock> enter(const store_request& what);
  task<std::string> await_key(store_request what);
  std::string name() const { return "file_store at " + path; }

  boost::asio::any_io_executor executor;
  std::string path;
  store_file file;
  store_contents contents;
};

task<held_lock> file_store::impl::enter(const store_request& what) {
  const milliseconds patience = what.timeout.count() == 0 ? lock_wait_without_timeout : what.timeout;
  held_lock held = co_await lock_file(executor, file, core::deadline_after(patience));
  if (!held) throw_locked(bootstrap::title_of(what, name()), file, path, patience);
  file.refresh(contents);
  co_return std::move(held);
}

task<std::string> file_store::impl::await_key(store_request what) {
  const core::time_point deadline = core::deadline_after(what.timeout);
  const store_contents::watch watch(contents, what.key, executor);
  {
    const held_lock held = co_await enter(what);
  }
  core::time_point looked = core::clock::now();
  for (milliseconds next = first_poll;; next = std::min(2 * next, longest_poll)) {
    std::optional<std::string> value = contents.find(what.key);
    if (value) co_return std::move(*value);
    if (core::clock::now() >= deadline) bootstrap::throw_missing_key(what, name());
    co_await watch.changed().wait(std::min(deadline, core::deadline_after(next)),
                                  bootstrap::title_of(what, name()));
    const core::time_point now = core::clock::now();
    if (!file.may_have_changed() && now < std::min(deadline, looked + longest_without_lock)) continue;
    const held_lock held = co_await lock_file(executor, file, core::deadline_after(longest_poll));
    if (held) file.refresh(contents);
    looked = now;
  }
}

task<std::unique_ptr<file_store>> file_store::open(boost::asio::any_io_executor executor, std::string path,
                                                   milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  for (;;) {
    std::unique_ptr<file_store> made(new file_store(std::make_shared<impl>(executor, path)));
    store_file& file = made->impl_->file;
    const held_lock held = co_await lock_file(executor, file, deadline);
    if (!held) throw_locked(fmt::format("opening the store at {}", path), file, path, timeout);
    if (!file.is_at_path()) continue;  // its last user has just removed it
    file.enter();
    made->set_timeout(timeout);
    co_return std::move(made);
  }
}

file_store::file_store(std::shared_ptr<impl> i) : impl_(std::move(i)) {}
file_store::~file_store() = default;

std::string file_store::name() const { return impl_->name(); }
std::uint64_t file_store::user() const noexcept { return impl_->file.user(); }
bool file_store::is_alive(std::uint64_t user) const { return impl_->file.is_alive(user); }

task<store_answer> file_store::carry_out(store_request what) {
  store_answer answer;
  if (what.waits()) {
    answer.text = co_await impl_->await_key(std::move(what));
  } else {
    const held_lock held = co_await impl_->enter(what);
    answer = impl_->contents.carry_out(what, name());
    const bool changes = what.operation == store_operation::set || what.operation == store_operation::add ||
                         what.operation == store_operation::append || answer.flag;
    if (changes) impl_->file.write(impl_->contents, what);
  }
  co_return std::move(answer);
}

}  // namespace tutti
