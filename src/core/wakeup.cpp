// SPDX-License-Identifier: Apache-2.0
#include "core/wakeup.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>

namespace tutti::core {

task<bool> wakeup::wait(time_point deadline, std::string what) {
  if (!notified_) {
    const detail::scoped_promise* const self = co_await detail::own_promise{};
    self->throw_if_stopped(what);
    timer_.expires_at(deadline);
    co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::deferred));
    if (!notified_) self->throw_if_stopped(what);
  }
  co_return std::exchange(notified_, false);
}

}  // namespace tutti::core
