// SPDX-License-Identifier: Apache-2.0
// A deadline for operations on a socket: when it passes, the socket's pending operations are cancelled.
#pragma once

#include "core/platform.hpp"

#include <boost/asio/steady_timer.hpp>
#include <memory>

namespace tutti::core {

class deadline_guard {
 public:
  template <class Socket>
  deadline_guard(Socket& socket, time_point deadline)
      : timer_(socket.get_executor(), deadline), expired_(std::make_shared<bool>(false)) {
    timer_.async_wait([&socket, expired = std::weak_ptr<bool>(expired_)](boost::system::error_code code) {
      const auto alive = expired.lock();  // null: the guard, and perhaps the socket, have gone
      if (code || !alive) return;
      *alive = true;
      boost::system::error_code ignored;
      socket.cancel(ignored);
    });
  }
  bool expired() const noexcept { return *expired_; }

 private:
  boost::asio::steady_timer timer_;
  std::shared_ptr<bool> expired_;
};

}  // namespace tutti::core
