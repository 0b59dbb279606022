// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.hpp"

#include "core/wakeup.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
using asio::ip::tcp;

acceptor::acceptor(asio::any_io_executor executor, std::string name, std::string secret, tls_identity tls,
                   core::purpose what, handler on_accepted, reporter report, std::function<bool()> has_room)
    : executor_(std::move(executor)),
      name_(std::move(name)),
      secret_(std::move(secret)),
      tls_(std::move(tls)),
      what_(what),
      on_accepted_(std::move(on_accepted)),
      report_(std::move(report)),
      has_room_(std::move(has_room)),
      unauthenticated_(name_) {
  if (!report_)
    report_ = [this](const std::string& from, const std::string& why) {
      unauthenticated_.report(from, why.c_str());
    };
}

void acceptor::open(base::unique_fd socket) {
  const std::optional<tcp::endpoint> at = local_endpoint(socket.get());
  if (!at) throw error(errc::invalid_argument, "not a listening socket");
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  listeners_.push_back(std::make_unique<listening>(
      core::admission::listener(executor_, core::stream_endpoint(*at).protocol(), socket.get())));
  socket.release();
  listening& from = *listeners_.back();
  const auto take = [this, &from](core::stream_socket s) { pending_.start(let_in(from, std::move(s))); };
  acceptors_.start(from.admission.accept_all(from.socket, name_, take));
}

void acceptor::close() {
  acceptors_.clear();
  for (const auto& l : listeners_) {
    boost::system::error_code ignored;
    l->socket.close(ignored);
  }
}

int acceptor::unproved() const noexcept {
  int all = 0;
  for (const auto& l : listeners_) all += l->admission.present();
  return all;
}

task<> acceptor::let_in(listening& by, core::stream_socket accepted) {
  core::stream_socket socket = std::move(accepted);
  if (has_room_ && !has_room_()) co_return;
  const int on = 1;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A client whose host has died must not stay for ever.
  ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  socket.secure_with(tls_);
  std::optional<core::identity> who;
  {
    const core::admission::pending_connection here(by.admission, socket);
    try {
      const core::greeting from =
          co_await core::receive_greeting(socket, secret_, what_, 0, -1, here.deadline());
      co_await core::answer_greeting(socket, secret_, from, core::verdict::accepted, here.deadline());
      who = from.peer;
    } catch (const error& e) {
      if (here.turned_out())
        report_(here.from(), "it had not proved who it is when there was no room for others");
      else if (e.code() != errc::peer_failed)  // one that has ended says why itself
        report_(here.from(), e.what());
    }
  }
  if (who) on_accepted_(std::move(socket), *who);
}

namespace {

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
        const bool may_pass =
            e.code() == errc::peer_failed || e.code() == errc::timed_out || e.code() == errc::resources;
        if (!may_pass) throw;
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
