// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <utility>

namespace tutti::launch {

// Calls `f` from the loop after this time, unless the timer is cancelled, or set again, before.
template <class F>
void run_after(boost::asio::steady_timer& timer, boost::asio::steady_timer::duration time, F f) {
  timer.expires_after(time);
  timer.async_wait([f = std::move(f)](const boost::system::error_code& cancelled) mutable {
    if (!cancelled) f();
  });
}

}  // namespace tutti::launch
