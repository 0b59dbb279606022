// SPDX-License-Identifier: Apache-2.0
// message_stream: messages over a socket, each after its length (4 bytes): many senders, one receiver.
#pragma once

#include "core/running_task.hpp"
#include "core/socket_io.hpp"
#include "core/wakeup.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

class message_stream {
 public:
  static constexpr std::size_t longest_message = 16u << 20;
  // Limit of messages that the other side does not read. Four of the longest, so that a client may have some
  // outstanding.
  static constexpr std::size_t most_queued_bytes = 4 * longest_message;

  explicit message_stream(core::stream_socket socket, std::size_t limit = most_queued_bytes)
      : socket_(std::move(socket)), limit_(limit), sent_(socket_.get_executor()) {}

  // Makes the kernel probe the other side's kernel while nothing is sent: the stream closes after such a silence.
  void notice_silence(std::chrono::milliseconds silence);
  // Queues a message; does nothing after close(). If it cannot be sent, or more than the limit would wait, the stream
  // closes, which the receiver sees.
  void send(std::string message);
  // Completes when at most half of most_queued_bytes waits, or the stream has closed. One caller waits at a time.
  task<> room();
  // Waits for the next message and returns it; nullopt if the other side has closed in order. Lets the loop turn while
  // messages come without a pause. Throws errc::protocol if it exceeds the limit, and what core::read_exactly() throws.
  task<std::optional<std::string>> receive();
  void close() noexcept;
  core::stream_socket& socket() noexcept { return socket_; }

 private:
  task<> pump();

  core::stream_socket socket_;
  std::deque<std::string> queue_;
  const std::size_t limit_;
  std::size_t queued_bytes_ = 0;
  core::time_point slice_end_{};
  core::wakeup sent_;
  bool pumping_ = false;
  core::background_tasks pumps_;  // last: the task uses the others
};

}  // namespace tutti::bootstrap
