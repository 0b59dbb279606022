// SPDX-License-Identifier: Apache-2.0
#include "launch/output_pump.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace tutti::launch {
namespace {

constexpr std::size_t chunk_bytes = 64 * 1024;
constexpr int chunks_per_turn = 8;  // then the other ranks get their turn
constexpr std::size_t tail_bytes = 4096;

}  // namespace

output_pump::output_pump(boost::asio::io_context& loop, int rank, route way, speakers& all, output_sink& to,
                         std::function<void()> closed)
    : source_(loop),
      log_(std::move(way.log)),
      log_failed_(std::move(way.log_failed)),
      to_(to),
      prefixer_(rank, all, to),
      shown_(way.shown),
      closed_(std::move(closed)) {
  source_.assign(way.source.get());
  way.source.release();
  source_.native_non_blocking(true);
}

void output_pump::start() { wait(); }

void output_pump::finish() {
  if (closed() || left_bytes_) return;
  int bytes = 0;
  ::ioctl(source_.native_handle(), FIONREAD, &bytes);
  left_bytes_ = static_cast<std::size_t>(bytes);
  if (waiting_) source_.cancel();  // its handler reads what is left
}

void output_pump::wait() {
  waiting_ = true;
  source_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code&) {
                       waiting_ = false;
                       transfer();
                     });
}

void output_pump::transfer() {
  static std::array<char, chunk_bytes> buffer;  // all pumps run on one thread, and none keeps bytes in it
  for (int chunk = 0; chunk < chunks_per_turn; ++chunk) {
    if (left_bytes_ == 0) return close();
    if (to_.congested()) return to_.when_relieved([this] { transfer(); });
    const ssize_t bytes = ::read(source_.native_handle(), buffer.data(), buffer.size());
    if (bytes > 0) {
      if (left_bytes_) *left_bytes_ -= std::min(*left_bytes_, static_cast<std::size_t>(bytes));
      deliver({buffer.data(), static_cast<std::size_t>(bytes)});
    } else if (bytes < 0 && errno == EINTR) {
      continue;
    } else if (bytes < 0 && errno == EAGAIN && !left_bytes_) {
      break;
    } else {
      return close();
    }
  }
  wait();
}

void output_pump::deliver(std::string_view bytes) {
  write_log(bytes);
  tail_ += bytes.substr(bytes.size() - std::min(bytes.size(), tail_bytes));
  if (tail_.size() > 2 * tail_bytes) tail_.erase(0, tail_.size() - tail_bytes);
  if (shown_) prefixer_.feed(bytes);
}

void output_pump::write_log(std::string_view bytes) {
  while (log_ && !bytes.empty()) {
    const ssize_t written = ::write(log_.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const int error = errno;
      log_.reset();
      log_failed_(error);
    }
  }
}

void output_pump::close() {
  source_.close();
  log_.reset();
  prefixer_.finish();
  closed_();
}

}  // namespace tutti::launch
