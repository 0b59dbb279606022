// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.hpp"

#include "bootstrap/address.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
using asio::ip::tcp;

acceptor::listener::listener(asio::any_io_executor executor, tcp::acceptor a)
    : acceptor(std::move(a)), admission(executor) {}

acceptor::acceptor(asio::any_io_executor executor, std::string name, std::string secret, tls_identity tls,
                   core::purpose what, handler on_accepted, reporter report)
    : executor_(std::move(executor)),
      name_(std::move(name)),
      secret_(std::move(secret)),
      tls_(std::move(tls)),
      what_(what),
      on_accepted_(std::move(on_accepted)),
      report_(std::move(report)),
      unauthenticated_(name_) {
  if (!report_)
    report_ = [this](const std::string& from, const std::string& why) {
      unauthenticated_.report(from, why.c_str());
    };
}

void acceptor::open(base::unique_fd listening) {
  const std::optional<tcp::endpoint> at = local_endpoint(listening.get());
  if (!at) throw error(errc::invalid_argument, "not a listening socket");
  ::fcntl(listening.get(), F_SETFL, ::fcntl(listening.get(), F_GETFL) | O_NONBLOCK);
  listeners_.push_back(
      std::make_unique<listener>(executor_, tcp::acceptor(executor_, at->protocol(), listening.get())));
  listening.release();
  listener& from = *listeners_.back();
  const auto take = [this, &from](core::stream_socket s) { pending_.start(let_in(from, std::move(s))); };
  acceptors_.start(from.admission.accept_all(from.acceptor, name_, take));
}

void acceptor::close() {
  acceptors_.clear();
  for (const auto& l : listeners_) {
    boost::system::error_code ignored;
    l->acceptor.close(ignored);
  }
}

task<bool> acceptor::prove(listener& by, core::stream_socket& socket, core::identity& who) {
  const core::admission::pending_connection here(by.admission, socket);
  const core::time_point deadline = here.deadline();
  bool proved = false;
  try {
    const core::greeting from = co_await core::receive_greeting(socket, secret_, what_, 0, -1, deadline);
    co_await core::answer_greeting(socket, secret_, from, core::verdict::accepted, deadline);
    who = from.peer;
    proved = true;
  } catch (const error& e) {
    if (here.turned_out())
      report_(here.from(), "it had not proved who it is when there was no room for others");
    else if (e.code() != errc::peer_failed)  // one that has ended says why itself
      report_(here.from(), e.what());
  }
  co_return proved;
}

task<> acceptor::let_in(listener& by, core::stream_socket accepted) {
  core::stream_socket socket = std::move(accepted);
  const int on = 1;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A client whose host has died must not stay for ever.
  ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  socket.secure_with(tls_);
  core::identity who;
  const bool proved = co_await prove(by, socket, who);
  if (proved) {
    on_accepted_(std::move(socket), who);
    co_return;
  }
  // Now, and not when this task's frame is destroyed.
  boost::system::error_code ignored;
  socket.close(ignored);
}

}  // namespace tutti::bootstrap
