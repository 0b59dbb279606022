// SPDX-License-Identifier: Apache-2.0
// message_stream: length-prefixed messages over a socket: many senders, one receiver.
#pragma once

#include "core/background.hpp"
#include "core/socket_io.hpp"

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

class message_stream {
 public:
  explicit message_stream(core::stream_socket socket) : socket_(std::move(socket)) {}

  // Queues a message that starts with its length (see store_wire.hpp). If it cannot be sent, or the other
  // side does not take it, the stream closes, which the receiver sees.
  void send(std::string message);
  // Waits for the next message and returns it without its length; nullopt if the other side has closed in
  // order. Throws errc::protocol if it exceeds the limit, and what core::read_exactly() throws.
  task<std::optional<std::string>> receive();
  void close() noexcept;
  core::stream_socket& socket() noexcept { return socket_; }

 private:
  task<> pump();

  core::stream_socket socket_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  bool pumping_ = false;
  core::background_tasks pumps_;  // last: the task uses the others
};

}  // namespace tutti::bootstrap
