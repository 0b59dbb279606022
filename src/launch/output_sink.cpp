// SPDX-License-Identifier: Apache-2.0
#include "launch/output_sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/unique_fd.hpp"

namespace tutti::launch {
namespace {

// O_NONBLOCK belongs to the open file, which the launcher shares with its shell and other writers; setting it
// would make their writes fail. Opened again, the pipe or terminal is the same and the flag is the launcher's
// own. Files never block, and sockets cannot be opened: both are written to as they are.
base::unique_fd open_anew(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !(S_ISFIFO(status.st_mode) || ::isatty(fd) == 1)) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return base::unique_fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// In a write that has to block, before the loop checks its signals again.
constexpr int longest_wait_ms = 100;
// For the end of another rank's line: it may be a prompt, or a progress bar.
constexpr std::chrono::seconds longest_wait_for_line{1};

}  // namespace

output_sink::output_sink(boost::asio::io_context& loop, int fd)
    : loop_(loop), line_patience_(loop), own_(loop), fd_(fd) {
  if (base::unique_fd own = open_anew(fd)) {
    own_.assign(own.get());
    fd_ = own.release();
  }
}

bool output_sink::begin_wait() {
  if (anything_waits()) return true;
  line_patience_.expires_after(longest_wait_for_line);
  line_patience_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) end_wait();
  });
  return true;
}

void output_sink::write(std::string_view bytes) {
  if (error_ != 0) return;
  if (queued_bytes() == 0) bytes.remove_prefix(write_some(bytes));
  if (error_ != 0 || bytes.empty()) return;
  queue_ += bytes;
  try_later();
}

std::size_t output_sink::write_some(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR) break;  // interrupted: the loop has a signal to handle
    error_ = errno;
    queue_.clear();
    sent_ = 0;
    boost::asio::post(loop_, [this] {
      if (on_broken_) on_broken_();
      flush();  // resumes the writers that wait for room
    });
    return bytes.size();
  }
  return done;
}

void output_sink::try_later() {
  if (std::exchange(retrying_, true)) return;
  const auto retry = [this] {
    retrying_ = false;
    flush();
  };
  if (own_.is_open()) {
    own_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                    [retry](const boost::system::error_code&) { retry(); });
    return;
  }
  boost::asio::post(loop_, [this, retry] {
    pollfd writable{fd_, POLLOUT, 0};
    ::poll(&writable, 1, longest_wait_ms);
    retry();
  });
}

void output_sink::flush() {
  if (queued_bytes() > 0) {
    const std::size_t sent = write_some(std::string_view(queue_).substr(sent_));
    if (error_ == 0) sent_ += sent;
    // A reader that is always behind never lets the queue become empty.
    if (sent_ > congestion_bytes) {
      queue_.erase(0, sent_);
      sent_ = 0;
    }
  }
  if (queued_bytes() > 0) {
    try_later();
  } else {
    queue_.clear();
    sent_ = 0;
  }
  if (queued_bytes() <= congestion_bytes / 2)
    for (const auto& resume : std::exchange(waiting_, {})) resume();
  if (queued_bytes() == 0)
    for (const auto& done : std::exchange(draining_, {})) done();
}

void output_sink::when_drained(std::function<void()> done) {
  draining_.push_back(std::move(done));
  if (queued_bytes() == 0) boost::asio::post(loop_, [this] { flush(); });
}

bool same_file(int a, int b) {
  struct stat of_a{};
  struct stat of_b{};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

}  // namespace tutti::launch
