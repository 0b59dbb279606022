// SPDX-License-Identifier: Apache-2.0
#include "launch/output_sink.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <system_error>
#include <utility>

#include "launch/run_after.hpp"

namespace tutti::launch {
namespace {

// O_NONBLOCK belongs to the open file, which the launcher shares with its shell and other writers; setting it
// would make their writes fail. Opened again, the pipe or terminal is the same and the flag is the launcher's
// own. A socket cannot be opened, nor a pipe that another user has made, as in a container that runs without
// root.
base::unique_fd open_anew(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return base::unique_fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// Takes the first line, with its newline if that is there.
std::string_view take_line(std::string_view& bytes) {
  const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), bytes.size() - 1) + 1);
  bytes.remove_prefix(line.size());
  return line;
}

constexpr std::size_t most_to_terminal = 256;  // one that is writable has room for about that
// For the end of another rank's line: it may be a prompt, or a progress bar. A user at a terminal waits.
constexpr std::chrono::milliseconds longest_wait_for_line{1000}, longest_wait_at_terminal{200};
// Until an unfinished line is shown: its end may be on the way.
constexpr std::chrono::milliseconds longest_hold{100};
constexpr std::string_view erase_line = "\r\x1b[K";

// Whether the last line of `text` returns to its start, other than at its end.
bool is_redrawn(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(text.ends_with("\r\n") ? 2 : 1);
  const std::string_view last = text.substr(text.rfind('\n') + 1);
  return last.find('\r') != last.npos;
}

}  // namespace

void line_destination::end_wait() {
  for (line_prefixer* const one : std::exchange(waiting_, {})) one->end_wait();
}

void line_destination::end_hold() {
  for (line_prefixer* const one : std::exchange(holding_, {})) one->end_hold();
}

void line_destination::say(std::string_view lines) {
  std::string out;
  if (is_unfinished_) out += '\n';
  set_unfinished_line_of(nullptr);
  out += lines;
  write(out);
  end_wait();
}

bool line_prefixer::waits(std::string_view bytes) {
  if (waiting_ && held_.size() + bytes.size() > most_waiting_bytes) to_.end_wait();
  if (waiting_) return true;
  const line_prefixer* const other = to_.unfinished_line_of_;
  if (other == nullptr || other == this) return false;
  if (to_.is_redrawn_ && is_redrawn(held_ + std::string(bytes))) return false;
  if (!to_.begin_wait()) return false;
  to_.waiting_.push_back(this);
  return waiting_ = true;
}

void line_prefixer::end_wait() {
  waiting_ = false;
  std::string out;
  add_lines(std::exchange(held_, {}), out);
  write(out);
  if (to_.shows_unfinished_lines()) show_held();
  if (over_) finish();
}

void line_prefixer::hold() {
  if (held_.empty() || !to_.shows_unfinished_lines()) return;
  if (std::ranges::find(to_.holding_, this) != to_.holding_.end()) return;
  to_.begin_hold();
  to_.holding_.push_back(this);
}

void line_prefixer::end_hold() {
  if (!held_.empty() && !waits({})) show_held();
}

void line_prefixer::show_held() {
  if (held_.empty()) return;
  std::string out;
  const bool redrawn = is_redrawn(held_);
  add_held(out);
  to_.set_unfinished_line_of(this, redrawn);
  write(out);
}

void line_prefixer::write(std::string_view bytes) {
  if (!bytes.empty()) to_.write(bytes);
  in_line_ = to_.unfinished_line_of_ == this;
  if (to_.unfinished_line_of_ == nullptr) to_.end_wait();
}

void line_prefixer::add_held(std::string& out) {
  std::string_view held = held_;
  if (to_.is_unfinished_ && to_.unfinished_line_of_ != this) {
    if (to_.is_redrawn_ && to_.shows_unfinished_lines() && is_redrawn(held))
      out += erase_line;
    else
      out += '\n';
  }
  to_.set_unfinished_line_of(nullptr);
  // At the start of a line a return to it means nothing.
  if (to_.shows_unfinished_lines())
    held.remove_prefix(std::min(held.find_first_not_of('\r'), held.size() - 1));
  out += speakers_.prefix(rank_);
  returned_ = false;
  add_redraws(held, out);
  held_.clear();
}

void line_prefixer::add_redraws(std::string_view bytes, std::string& out) {
  if (!to_.shows_unfinished_lines()) {
    out += bytes;
    return;
  }
  for (const char c : bytes) {
    if (returned_ && c != '\r' && c != '\n') out += speakers_.prefix(rank_);
    out += c;
    returned_ = c == '\r';
  }
}

void line_prefixer::feed(std::string_view bytes) {
  if (bytes.empty()) return;
  speakers_.heard(rank_);
  // The newline of a line that the launcher or another rank had to end already.
  if (in_line_ && to_.unfinished_line_of_ != this && bytes.front() == '\n') bytes.remove_prefix(1);
  in_line_ = false;
  if (bytes.empty()) return;
  if (!speakers_.mixed()) {
    to_.set_unfinished_line_of(bytes.back() == '\n' ? nullptr : this, is_redrawn(bytes));
    returned_ = bytes.back() == '\r';
    return write(bytes);
  }
  if (waits(bytes)) {
    held_ += bytes;
    return;
  }

  std::string out;
  if (to_.unfinished_line_of_ == this) {  // no other stream has written in between: the line continues
    const std::string_view more = take_line(bytes);
    const bool redrawn = to_.is_redrawn_ || is_redrawn(more);
    add_redraws(more, out);
    to_.set_unfinished_line_of(more.back() == '\n' ? nullptr : this, redrawn);
  }
  add_lines(bytes, out);
  write(out);
  hold();
}

void line_prefixer::add_lines(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    held_ += take_line(bytes);
    const bool ends = held_.back() == '\n';
    if (!ends && held_.size() < longest_kept_bytes) break;
    add_held(out);
    if (!ends) to_.set_unfinished_line_of(this);
  }
}

void line_prefixer::finish() {
  over_ = true;
  std::erase(to_.holding_, this);
  if (waiting_) return;
  std::string out;
  if (!held_.empty()) add_lines("\n", out);
  if (speakers_.mixed() && to_.unfinished_line_of_ == this) {
    out += '\n';
    to_.set_unfinished_line_of(nullptr);
  }
  if (to_.unfinished_line_of_ == this) to_.unfinished_line_of_ = nullptr;
  write(out);
}

// ---- the launcher's own stream ----

output_sink::output_sink(boost::asio::io_context& loop, int fd)
    : loop_(loop), line_patience_(loop), hold_patience_(loop), reader_patience_(loop), fd_(fd), ready_(loop) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return;
  terminal_ = ::isatty(fd) == 1;
  if (!terminal_ && !S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode)) return;
  own_ = open_anew(fd);
  if (own_)
    fd_ = own_.get();
  else
    most_at_once_ = terminal_ ? most_to_terminal : PIPE_BUF;
  // Asio would set O_NONBLOCK on a descriptor that it waits for.
  base::unique_fd watching(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event writable{};
  writable.events = EPOLLOUT;
  if (!watching || ::epoll_ctl(watching.get(), EPOLL_CTL_ADD, fd_, &writable) != 0)
    throw std::system_error(errno, std::generic_category(), "the launcher's output");
  ready_.assign(watching.get());
  watching.release();
}

bool output_sink::begin_wait() {
  if (!anything_waits())
    run_after(line_patience_, terminal_ ? longest_wait_at_terminal : longest_wait_for_line,
              [this] { end_wait(); });
  return true;
}

void output_sink::begin_hold() {
  if (!anything_is_held()) run_after(hold_patience_, longest_hold, [this] { end_hold(); });
}

void output_sink::write(std::string_view bytes) {
  if (error_ != 0) return;
  if (queue_.size() == 0) bytes.remove_prefix(write_some(bytes));
  if (error_ != 0 || bytes.empty()) return;
  queue_.commit(boost::asio::buffer_copy(queue_.prepare(bytes.size()), boost::asio::buffer(bytes)));
  try_later();
}

ssize_t output_sink::write_now(std::string_view bytes) const {
  if (most_at_once_ > 0) {
    // To a socket, without blocking, whoever else writes there.
    if (const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        sent >= 0 || errno != ENOTSOCK)
      return sent;
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) != 1) {
      errno = EAGAIN;
      return -1;
    }
    bytes = bytes.substr(0, most_at_once_);
  }
  return ::write(fd_, bytes.data(), bytes.size());
}

std::size_t output_sink::write_some(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write_now(bytes.substr(done));
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR) break;  // interrupted: the loop has a signal to handle
    fail(errno);
    return bytes.size();
  }
  taken_bytes_ += done;
  return done;
}

void output_sink::fail(int error) {
  error_ = error;
  queue_.consume(queue_.size());
  boost::asio::post(loop_, [this] {
    if (on_broken_) on_broken_();
    flush();  // resumes the writers that wait for room
  });
}

void output_sink::give_up_after(std::chrono::milliseconds patience) {
  const auto at = std::chrono::steady_clock::now() + patience;
  if (!std::exchange(gives_up_, true) || at < reader_patience_.expiry()) check_reader(patience);
}

void output_sink::check_reader(std::chrono::milliseconds patience) {
  run_after(reader_patience_, patience, [this, patience, before = taken_bytes_] {
    if (error_ != 0) return;
    if (queue_.size() > 0 && taken_bytes_ == before) return fail(ECANCELED);
    check_reader(patience);
  });
}

void output_sink::try_later() {
  if (std::exchange(retrying_, true)) return;
  const auto retry = [this](const boost::system::error_code& = {}) {
    retrying_ = false;
    flush();
  };
  if (!ready_.is_open()) return boost::asio::post(loop_, retry);
  ready_.async_wait(boost::asio::posix::stream_descriptor::wait_read, retry);
}

void output_sink::flush() {
  if (queue_.size() > 0)
    queue_.consume(write_some({static_cast<const char*>(queue_.data().data()), queue_.size()}));
  if (queue_.size() > 0) try_later();
  if (queue_.size() <= congestion_bytes / 2)
    for (const auto& resume : std::exchange(waiting_, {})) resume();
  if (queue_.size() == 0)
    for (const auto& done : std::exchange(draining_, {})) done();
}

void output_sink::when_drained(std::function<void()> done) {
  draining_.push_back(std::move(done));
  if (queue_.size() == 0) boost::asio::post(loop_, [this] { flush(); });
}

bool same_file(int a, int b) {
  struct stat of_a{};
  struct stat of_b{};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

}  // namespace tutti::launch
