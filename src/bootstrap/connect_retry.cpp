// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/connect_retry.hpp"

#include "core/wakeup.hpp"

#include <algorithm>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

// Whether the next attempt may cure the error; others end the attempts.
bool worth_another_try(const error& e) {
  return e.code() == errc::peer_failed || e.code() == errc::timed_out || e.code() == errc::resources;
}

// One connection to one address, proved on both sides.
task<core::stream_socket> reach(boost::asio::any_io_executor executor, core::stream_endpoint at,
                                const std::string& secret, tls_identity tls, core::identity mine,
                                core::time_point deadline) {
  // A host that swallows packets must not use up the time of the other addresses.
  const core::time_point connected_by = std::min(deadline, core::deadline_after(std::chrono::seconds(5)));
  core::stream_socket socket = co_await core::connect(executor, at, connected_by);
  socket.secure_with(std::move(tls));
  // The whole time: behind a listener held by the launcher, rank 0 may not have started yet.
  co_await core::greet(socket, secret, mine, 0, deadline);
  co_return std::move(socket);
}

}  // namespace

task<std::optional<core::stream_socket>> connect_retry(boost::asio::any_io_executor executor,
                                                       endpoints addresses, std::string secret,
                                                       tls_identity tls, core::identity mine, listener whom,
                                                       core::time_point deadline, std::string* last_failure) {
  *last_failure = "no attempt was made";
  core::wakeup pause(executor);
  for (auto back_off = std::chrono::milliseconds(5);;
       back_off = std::min(back_off * 2, std::chrono::milliseconds(250))) {
    std::size_t refused = 0;
    for (const auto& address : addresses) {
      std::optional<core::stream_socket> socket;
      try {
        socket.emplace(co_await reach(executor, address, secret, tls, mine, deadline));
      } catch (const core::connection_refused& e) {
        ++refused;
        *last_failure = e.what();
      } catch (const error& e) {
        if (!worth_another_try(e)) throw;
        *last_failure = e.what();
      }
      if (socket) co_return std::move(socket);
    }
    if (whom == listener::has_come && refused == addresses.size()) co_return std::nullopt;
    const core::time_point next = std::min(deadline, core::deadline_after(back_off));
    co_await pause.wait(next, "connecting to rank 0");
    if (core::clock::now() >= deadline) co_return std::nullopt;
  }
}

}  // namespace tutti::bootstrap
