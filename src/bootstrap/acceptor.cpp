// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.hpp"

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/deferred.hpp>
#include <cerrno>
#include <tuple>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
using asio::ip::tcp;

acceptor::listener::listener(asio::any_io_executor executor, tcp::acceptor a)
    : protocol(a.local_endpoint().protocol()), acceptor(std::move(a)), admission(executor) {}

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

void acceptor::open(tcp::acceptor a) {
  listeners_.push_back(std::make_unique<listener>(executor_, std::move(a)));
  acceptors_.start(accept(*listeners_.back()));
}

void acceptor::close() {
  acceptors_.clear();
  for (const auto& l : listeners_) {
    boost::system::error_code ignored;
    l->acceptor.close(ignored);
  }
}

task<> acceptor::accept(listener& from) {
  for (;;) {
    while (!from.admission.has_room()) {
      co_await from.admission.wait_for_room();
    }
    base::unique_fd fd(
        ::accept4(from.acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int code = errno;
    if (fd) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      // A client whose host has died must not stay for ever.
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      try {
        core::stream_socket socket(executor_, from.protocol, fd.get());
        fd.release();
        pending_.start(let_in(from, std::move(socket)));
      } catch (const boost::system::system_error& e) {
        base::log_warning(fmt::format("{} dropped a connection: {}", name_, e.what()));
      }
      continue;
    }
    if (code == EINTR || code == ECONNABORTED) continue;
    if (code == EAGAIN || code == EWOULDBLOCK) {
      const std::tuple<boost::system::error_code> ready =
          co_await from.acceptor.async_wait(tcp::acceptor::wait_read, asio::as_tuple(asio::deferred));
      if (std::get<0>(ready)) co_return;  // closed
      continue;
    }
    if (!std::exchange(reported_limit_, true))
      base::log_warning(fmt::format("{} cannot accept a connection now: {}; raise the limit (ulimit -n)",
                                    name_, base::errno_text(code)));
    // Out of descriptors or memory: others must go first, and nothing reports that.
    core::wakeup pause(executor_);
    co_await pause.wait(core::deadline_after(std::chrono::milliseconds(100)));
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
