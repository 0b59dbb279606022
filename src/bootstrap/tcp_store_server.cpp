// SPDX-License-Identifier: Apache-2.0
// The server: an acceptor, a task for each connection and for each request, and one memory_store.
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/acceptor.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/message_stream.hpp"
#include "bootstrap/store_contents.hpp"
#include "bootstrap/store_request.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

namespace tutti {

namespace asio = boost::asio;
using asio::ip::tcp;
using bootstrap::store_answer;
using bootstrap::store_request;

namespace {

constexpr int most_requests = 4096;  // outstanding at once, from one client

}  // namespace

struct tcp_store_server::impl {
  impl(asio::any_io_executor e, std::string secret, tls_identity tls, std::vector<base::unique_fd> sockets);

  task<> serve(core::stream_socket socket);
  task<> answer(bootstrap::message_stream& to, store_request request, int& outstanding);

  asio::any_io_executor executor;
  tcp::endpoint at;  // the first that it listens at
  memory_store local;
  core::wakeup empty;  // the last client has left
  int clients = 0;
  bootstrap::acceptor acceptor;
  core::background_tasks connections;  // last: its tasks use the others
};

tcp_store_server::impl::impl(asio::any_io_executor e, std::string secret, tls_identity tls,
                             std::vector<base::unique_fd> sockets)
    : executor(e),
      at(bootstrap::local_endpoint(sockets.front().get()).value()),
      local(e, std::make_shared<bootstrap::store_contents>(),
            fmt::format("tcp_store at {}", bootstrap::host_and_port(at.address().to_string(), at.port()))),
      empty(e),
      acceptor(e, local.name(), std::move(secret), std::move(tls), core::purpose::store,
               [this](core::stream_socket socket, const core::identity&) {
                 connections.start(serve(std::move(socket)));
               }) {
  for (base::unique_fd& socket : sockets) acceptor.open(std::move(socket));
}

task<> tcp_store_server::impl::serve(core::stream_socket socket) {
  struct place {
    impl& of;
    explicit place(impl& i) : of(i) { ++of.clients; }
    ~place() {
      if (--of.clients == 0) of.empty.notify();
    }
  } const taken(*this);
  // Not closed for answers to requests that it has taken. While many wait, it takes no more.
  bootstrap::message_stream stream(std::move(socket), SIZE_MAX);
  int outstanding = 0;
  core::background_tasks requests;
  try {
    for (;;) {
      co_await stream.room();
      const std::optional<std::string> message = co_await stream.receive();
      if (!message) break;
      store_request request = bootstrap::decode_request(*message);
      if (outstanding < most_requests) {
        requests.start(answer(stream, std::move(request), outstanding));
        continue;
      }
      store_answer refusal;
      refusal.number = request.number;
      refusal.code = errc::resources;
      refusal.text =
          fmt::format("{}: one client has more than {} requests outstanding; await some of them first",
                      local.name(), most_requests);
      stream.send(bootstrap::encode(refusal));
    }
  } catch (const error& e) {
    // Its rank reports a client that dies; this process reports one that breaks the protocol.
    if (e.code() == errc::protocol)
      base::log_warning(fmt::format("{}: dropped a client: {}", local.name(), e.what()));
  }
}

task<> tcp_store_server::impl::answer(bootstrap::message_stream& to, store_request request,
                                      int& outstanding) {
  struct place {
    int& count;
    explicit place(int& c) : count(c) { ++count; }
    ~place() { --count; }
  } const taken(outstanding);
  const std::uint64_t number = request.number;
  store_answer answer;
  try {
    answer = co_await bootstrap::perform(local, std::move(request));
  } catch (const error& e) {
    answer.code = static_cast<errc>(e.code().value());
    answer.text = e.what();
  }
  answer.number = number;
  to.send(bootstrap::encode(answer));
}

tcp_store_server::tcp_store_server(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
tcp_store_server::~tcp_store_server() = default;

std::uint16_t tcp_store_server::port() const noexcept { return impl_->at.port(); }

std::unique_ptr<memory_store> tcp_store_server::local() const {
  return std::make_unique<memory_store>(impl_->executor, impl_->local);
}

task<> tcp_store_server::drain(std::chrono::milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  impl_->acceptor.close();
  for (bool in_time = true; in_time && impl_->clients > 0;) {
    in_time = co_await impl_->empty.wait(deadline);
  }
  impl_->connections.clear();
}

namespace {

// Returns a socket that listens at `at`, or none if the address is not of this host.
base::unique_fd listening_socket(const tcp::endpoint& at, const std::string& place) {
  base::unique_fd fd = bootstrap::listen_at(at);
  const int code = errno;
  if (fd || code == EADDRNOTAVAIL || code == EAFNOSUPPORT) return fd;
  if (code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM)
    base::throw_error(errc::resources, "no socket for the store: {}", base::errno_text(code));
  if (code == EADDRINUSE)
    base::throw_error(
        errc::system,
        "the store cannot listen at {}: port {} is in use, by another rank 0, an earlier run or another "
        "program; choose another port (MASTER_PORT, or init_method; the same on all ranks), or end what "
        "listens there (ss -ltnp 'sport = :{}' shows it)",
        place, at.port(), at.port());
  base::throw_error(errc::system,
                    "the store cannot listen at {}: {}; choose another address or port (MASTER_ADDR and "
                    "MASTER_PORT, or the address in init_method)",
                    place, base::errno_text(code));
}

}  // namespace

task<std::unique_ptr<tcp_store_server>> tcp_store_server::listen(asio::any_io_executor executor,
                                                                 std::string host, std::uint16_t port,
                                                                 std::string secret,
                                                                 std::chrono::milliseconds timeout,
                                                                 tls_identity tls) {
  const std::string place = bootstrap::host_and_port(host, port);
  bootstrap::endpoints addresses =
      co_await bootstrap::resolve_host(executor, host, port, core::deadline_after(timeout));
  if (secret.empty()) {
    std::erase_if(addresses, [](const tcp::endpoint& e) { return !bootstrap::is_loopback(e.address()); });
    if (addresses.empty()) bootstrap::throw_needs_secret(fmt::format("the store's address {}", place));
  } else {
    addresses = bootstrap::listening_addresses(host, std::move(addresses));
  }

  std::vector<base::unique_fd> sockets;
  for (tcp::endpoint at : addresses) {
    // With port 0, the port that the first address was given serves for all.
    if (port == 0 && !sockets.empty()) at.port(bootstrap::local_endpoint(sockets.front().get())->port());
    if (base::unique_fd fd = listening_socket(at, place)) sockets.push_back(std::move(fd));
  }
  if (sockets.empty())
    base::throw_error(errc::invalid_argument,
                      "the store cannot listen at {}: that is not an address of this host; "
                      "MASTER_ADDR, or the address in init_method, is the host that rank 0 runs on",
                      place);
  auto made = std::make_unique<impl>(executor, std::move(secret), std::move(tls), std::move(sockets));
  co_return std::unique_ptr<tcp_store_server>(new tcp_store_server(std::move(made)));
}

std::unique_ptr<tcp_store_server> tcp_store_server::adopt(asio::any_io_executor executor,
                                                          int listening_descriptor, std::string secret,
                                                          tls_identity tls) {
  base::unique_fd fd(listening_descriptor);
  int listens = 0;
  socklen_t length = sizeof listens;
  const std::optional<tcp::endpoint> at = bootstrap::local_endpoint(fd.get());
  if (!at || ::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    fd.release();  // it does not belong to this object then
    base::throw_error(
        errc::invalid_argument,
        "descriptor {} is not a listening TCP socket; TUTTI_STORE_FD is set by tutti-run for rank 0 "
        "and means nothing elsewhere: unset it",
        listening_descriptor);
  }
  if (secret.empty() && !bootstrap::is_loopback(at->address()))
    bootstrap::throw_needs_secret(fmt::format("the store's address {}", core::endpoint_text(*at)));
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  std::vector<base::unique_fd> sockets;
  sockets.push_back(std::move(fd));
  auto made = std::make_unique<impl>(executor, std::move(secret), std::move(tls), std::move(sockets));
  return std::unique_ptr<tcp_store_server>(new tcp_store_server(std::move(made)));
}

}  // namespace tutti
