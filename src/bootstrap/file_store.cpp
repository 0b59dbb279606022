// SPDX-License-Identifier: Apache-2.0
// file_store: operations on a copy of the contents, under the file's lock; and one task that polls for
// changes while a caller waits.
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/lock_holders.hpp"
#include "bootstrap/store_contents.hpp"
#include "bootstrap/store_errors.hpp"
#include "bootstrap/store_file.hpp"
#include "core/background.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <optional>
#include <set>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

namespace tutti {

using bootstrap::store_contents;
using bootstrap::store_file;
using change = store_file::change;
using std::chrono::milliseconds;

namespace {

// A holder needs microseconds.
constexpr auto first_pause = std::chrono::microseconds(50);
constexpr auto longest_pause = milliseconds(5);
// A caller without time to wait for a key must still get the lock, to know that the key is missing.
constexpr auto lock_wait_without_timeout = milliseconds(10'000);
// Between polls of the file, from the last change on. If the kernel reports changes, the longest is for what
// it may have missed.
constexpr auto first_poll = milliseconds(1);
constexpr auto longest_poll = milliseconds(100);
constexpr auto longest_poll_when_told = milliseconds(1000);

// Whether inotify reports every user's changes, and a read without the lock sees them.
bool is_local(int fd) noexcept {
  struct statfs system{};
  if (::fstatfs(fd, &system) != 0) return false;
  constexpr std::array<long, 7> local = {0xEF53 /* ext4 */,
                                         0x01021994 /* tmpfs */,
                                         0x58465342 /* xfs */,
                                         0x9123683E /* btrfs */,
                                         0x794C7630 /* overlay */,
                                         0xF2F52010 /* f2fs */,
                                         0x2FC12FC1 /* zfs */};
  return std::find(local.begin(), local.end(), static_cast<long>(system.f_type)) != local.end();
}

struct unlocks {
  void operator()(store_file* file) const noexcept { file->unlock(); }
};
// Holds the lock as long as it lives.
using held_lock = std::unique_ptr<store_file, unlocks>;

// Null: not within the time. The lock itself is passed on, not a notification of it: a task may be destroyed
// between its child's end and its own next step.
task<held_lock> lock_file(boost::asio::any_io_executor executor, store_file& file,
                          core::time_point deadline) {
  core::wakeup pause(executor);
  for (core::duration next = first_pause;; next = std::min<core::duration>(2 * next, longest_pause)) {
    if (file.try_lock()) co_return held_lock(&file);
    const core::time_point now = core::clock::now();
    if (now >= deadline) co_return held_lock();
    co_await pause.wait(std::min(deadline, now + next));
  }
}

[[noreturn]] void throw_locked(const std::string& operation, const store_file& file, const std::string& path,
                               milliseconds timeout) {
  const std::vector<pid_t> holders = bootstrap::lock_holders(file.descriptor());
  const std::string who =
      holders.empty()
          ? fmt::format(
                "by a process that is not visible from here; `fuser -v {}`, as root and on each host, names "
                "those that have it open",
                path)
          : "by " + bootstrap::list_of_processes(holders);
  throw error(errc::timed_out,
              fmt::format("{}: the lock of the file has been held for {} {}; continue or end that process",
                          operation, base::duration_text(timeout), who));
}

}  // namespace

struct file_store::impl {
  // A wait for a key: notified whenever the contents have changed.
  struct waiter {
    explicit waiter(impl& i) : of(i), changed(i.executor) {
      of.waiters.insert(&changed);
      if (!of.watching) of.watcher.start(of.watch());
    }
    ~waiter() {
      of.waiters.erase(&changed);
      if (of.waiters.empty()) of.poll_now.notify();
    }
    impl& of;
    core::wakeup changed;
  };

  impl(boost::asio::any_io_executor e, std::string p, std::unique_ptr<store_file> f)
      : executor(e),
        path(std::move(p)),
        file(std::move(f)),
        local(is_local(file->descriptor())),
        poll_now(e) {}

  // Takes the lock and updates the contents.
  task<held_lock> enter(const char* operation, std::string key, milliseconds timeout);
  task<std::optional<std::string>> await_key(const char* operation, std::string key, milliseconds timeout);
  void write(change kind, const std::string& key, std::string_view value);
  task<> watch();
  void listen();
  void hear();
  void tell() {
    for (core::wakeup* w : waiters) w->notify();
  }
  std::string name() const { return "file_store at " + path; }

  boost::asio::any_io_executor executor;
  std::string path;
  std::unique_ptr<store_file> file;
  store_contents contents;
  const bool local;
  std::set<core::wakeup*> waiters;
  std::exception_ptr trouble;  // of the watcher: it reports no more changes
  bool watching = false;
  core::wakeup poll_now;  // wakes the watcher
  std::optional<boost::asio::posix::stream_descriptor> notices;
  std::shared_ptr<impl> alive{this, [](impl*) {}};  // gone with this: for handlers that come too late
  core::background_tasks watcher;                   // last: the task uses the others
};

task<held_lock> file_store::impl::enter(const char* operation, std::string key, milliseconds timeout) {
  const milliseconds patience = timeout.count() == 0 ? lock_wait_without_timeout : timeout;
  held_lock held = co_await lock_file(executor, *file, core::deadline_after(patience));
  if (!held) throw_locked(fmt::format("{}('{}') on {}", operation, key, name()), *file, path, patience);
  if (file->refresh(contents)) tell();
  co_return std::move(held);
}

void file_store::impl::write(change kind, const std::string& key, std::string_view value) {
  tell();
  file->write(contents, kind, key, value);
}

task<std::optional<std::string>> file_store::impl::await_key(const char* operation, std::string key,
                                                             milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  {
    const held_lock held = co_await enter(operation, key, timeout);
  }
  std::optional<std::string> value = contents.find(key);
  if (value || timeout.count() == 0) co_return value;
  waiter mine(*this);
  for (bool in_time = true;;) {
    value = contents.find(key);
    if (value || !in_time) co_return value;
    if (trouble) std::rethrow_exception(trouble);
    in_time = co_await mine.changed.wait(deadline, bootstrap::title_of(operation, key, name()));
  }
}

task<> file_store::impl::watch() {
  watching = true;
  trouble = nullptr;
  try {
    listen();
    const auto longest = local && notices ? longest_poll_when_told : longest_poll;
    for (milliseconds next = first_poll; !waiters.empty();) {
      bool changed = false;
      if (!local || file->may_have_changed()) {
        // A waiting caller has a deadline of its own.
        const held_lock held = co_await lock_file(executor, *file, core::deadline_after(longest));
        if (held) changed = file->refresh(contents);
      }
      if (changed) tell();
      next = changed ? first_poll : std::min(2 * next, longest);
      co_await poll_now.wait(core::deadline_after(next));
    }
  } catch (const error&) {
    trouble = std::current_exception();
    tell();
  }
  if (notices) {
    boost::system::error_code ignored;
    notices->cancel(ignored);
  }
  watching = false;
}

// Without inotify (of which one user has few), the file is polled more often.
void file_store::impl::listen() {
  if (!notices) {
    base::unique_fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    // The file that is open, whatever is at the path.
    const std::string itself = fmt::format("/proc/self/fd/{}", file->descriptor());
    if (!fd || ::inotify_add_watch(fd.get(), itself.c_str(), IN_MODIFY | IN_ATTRIB) < 0) return;
    notices.emplace(executor, fd.get());
    fd.release();
  }
  hear();
}

void file_store::impl::hear() {
  notices->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, still = std::weak_ptr<impl>(alive)](const boost::system::error_code& code) {
                        if (code || still.expired() || !watching) return;
                        std::array<char, 4096> unread;
                        while (::read(notices->native_handle(), unread.data(), unread.size()) > 0) {
                        }
                        poll_now.notify();
                        hear();
                      });
}

task<std::unique_ptr<file_store>> file_store::open(boost::asio::any_io_executor executor, std::string path,
                                                   milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  for (;;) {
    std::unique_ptr<file_store> made(
        new file_store(std::make_unique<impl>(executor, path, std::make_unique<store_file>(path))));
    store_file& file = *made->impl_->file;
    const held_lock held = co_await lock_file(executor, file, deadline);
    if (!held) throw_locked(fmt::format("opening the store at {}", path), file, path, timeout);
    if (!file.is_at_path()) continue;  // its last user has just removed it
    file.enter();
    made->set_timeout(timeout);
    co_return std::move(made);
  }
}

file_store::file_store(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
file_store::~file_store() = default;

std::string file_store::name() const { return impl_->name(); }
std::uint64_t file_store::user() const noexcept { return impl_->file->user(); }
bool file_store::is_alive(std::uint64_t user) const { return impl_->file->is_alive(user); }

task<> file_store::do_set(std::string key, std::string value, milliseconds timeout) {
  const held_lock held = co_await impl_->enter("set", key, timeout);
  impl_->contents.set(key, value);
  impl_->write(change::set, key, value);
}

task<std::string> file_store::do_get(std::string key, milliseconds timeout) {
  std::optional<std::string> value = co_await impl_->await_key("get", key, timeout);
  if (!value) bootstrap::throw_missing_key("get", key, name(), timeout);
  co_return std::move(*value);
}

task<> file_store::do_wait(std::string key, milliseconds timeout) {
  const std::optional<std::string> value = co_await impl_->await_key("wait", key, timeout);
  if (!value) bootstrap::throw_missing_key("wait", key, name(), timeout);
}

task<std::int64_t> file_store::do_add(std::string key, std::int64_t amount, milliseconds timeout) {
  const held_lock held = co_await impl_->enter("add", key, timeout);
  const std::optional<std::int64_t> total = impl_->contents.add(key, amount);
  if (!total) bootstrap::throw_bad_add(key, name());
  impl_->write(change::set, key, std::to_string(*total));
  co_return *total;
}

task<store_exchange> file_store::do_compare_exchange(std::string key, std::string expected,
                                                     std::string desired, milliseconds timeout) {
  const held_lock held = co_await impl_->enter("compare_exchange", key, timeout);
  store_exchange result = impl_->contents.compare_exchange(key, expected, std::move(desired));
  if (result.exchanged) impl_->write(change::set, key, result.value);
  co_return std::move(result);
}

task<bool> file_store::do_erase(std::string key, milliseconds timeout) {
  const held_lock held = co_await impl_->enter("erase", key, timeout);
  const bool existed = impl_->contents.erase(key);
  if (existed) impl_->write(change::erase, key, {});
  co_return existed;
}

task<std::size_t> file_store::do_count(std::string prefix, milliseconds timeout) {
  const held_lock held = co_await impl_->enter("count", prefix, timeout);
  co_return impl_->contents.count(prefix);
}

task<std::size_t> file_store::do_append(std::string key, std::string text, milliseconds timeout) {
  const held_lock held = co_await impl_->enter("append", key, timeout);
  const std::optional<std::size_t> length = impl_->contents.append(key, text, store::largest_value);
  if (!length) bootstrap::throw_too_long(key, name());
  impl_->write(change::append, key, text);
  co_return *length;
}

}  // namespace tutti
