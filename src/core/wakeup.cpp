// SPDX-License-Identifier: Apache-2.0
#include "core/wakeup.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>

namespace tutti::core {

task<bool> wakeup::wait(time_point deadline) {
  if (!notified_) {
    timer_.expires_at(deadline);
    co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::deferred));
  }
  co_return std::exchange(notified_, false);
}

}  // namespace tutti::core
