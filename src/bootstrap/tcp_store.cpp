// SPDX-License-Identifier: Apache-2.0
// tcp_store and its server. The client has one connection, one task that reads answers, and requests that wait for
// their answer by number. The server has an acceptor, a task for each connection and for each request, and one
// memory_store, unless it serves another store.
#include "base/fields.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/acceptor.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/message_stream.hpp"
#include "bootstrap/store_contents.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstdint>
#include <new>
#include <optional>
#include <tutti/store.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti {

namespace asio = boost::asio;
using asio::ip::tcp;

// ---- the client ----

struct tcp_store::impl {
  struct pending {
    explicit pending(impl& i) : of(i), number(++i.last_number), answered(i.executor) {
      of.waiting.emplace(number, this);
    }
    ~pending() { of.waiting.erase(number); }
    impl& of;
    const std::uint64_t number;
    core::wakeup answered;
    std::optional<store_answer> answer;  // still empty after the notification: the connection broke
  };

  impl(boost::asio::any_io_executor e, std::string n, core::stream_socket s, milliseconds silence)
      : executor(std::move(e)),
        name(std::move(n)),
        stream(std::move(s), SIZE_MAX) {  // requests wait in memory of their callers anyway
    stream.notice_silence(silence);
    reader.start(read_answers());
  }

  static task<std::unique_ptr<tcp_store>> connect(boost::asio::any_io_executor executor, std::string host,
                                                  std::uint16_t port, std::string secret, int rank,
                                                  milliseconds timeout, tls_identity tls,
                                                  bootstrap::listener server);
  task<> read_answers();
  task<store_answer> ask(store_request what);

  boost::asio::any_io_executor executor;
  std::string name;
  bootstrap::message_stream stream;
  std::unordered_map<std::uint64_t, pending*> waiting;
  std::uint64_t last_number = 0;
  std::optional<std::string> broken;  // why there is no connection any more
  core::background_tasks reader;      // last: the task uses the others
};

task<> tcp_store::impl::read_answers() {
  std::string why;
  try {
    for (;;) {
      const std::optional<std::string> message = co_await stream.receive();
      if (!message) break;
      store_answer answer = bootstrap::decode_answer(*message);
      const auto at = waiting.find(answer.number);
      if (at == waiting.end()) continue;  // its request was given up
      at->second->answer = std::move(answer);
      at->second->answered.notify();
    }
    why = "it closed the connection";
  } catch (const error& e) {
    why = e.what();
  }
  stream.close();
  broken = std::move(why);
  for (const auto& [number, request] : waiting) request->answered.notify();
}

task<store_answer> tcp_store::impl::ask(store_request what) {
  // A caller without time to wait for a key must still wait for the answer that it does not exist.
  const milliseconds for_answer = what.timeout.count() == 0 ? milliseconds(10'000) : what.timeout;
  const core::time_point deadline = core::deadline_after(for_answer);
  const std::string title = bootstrap::title_of(what, name);
  if (!broken) {
    pending mine(*this);
    what.number = mine.number;
    stream.send(base::to_bytes(what));
    const bool in_time = co_await mine.answered.wait(deadline, title);
    if (!in_time && !(what.waits() && what.timeout.count() > 0))
      base::throw_error(errc::timed_out,
                        "{}: no answer within {}; the process that serves the store (rank 0) hangs or is "
                        "stopped: look at its output",
                        title, base::duration_text(for_answer));
    if (!in_time || (mine.answer && mine.answer->code == errc::timed_out))
      bootstrap::throw_missing_key(what, name);
    if (mine.answer && mine.answer->code != errc::success) throw error(mine.answer->code, mine.answer->text);
    if (mine.answer) co_return std::move(*mine.answer);
  }
  base::throw_error(errc::peer_failed,
                    "{}: the store has gone ({}); the process that serves it (rank 0) has ended or failed: "
                    "look at its output",
                    title, broken.value_or("closed"));
}

tcp_store::tcp_store(std::shared_ptr<impl> i) : impl_(std::move(i)) {}
tcp_store::~tcp_store() = default;

std::string tcp_store::name() const { return impl_->name; }

task<store_answer> tcp_store::carry_out(store_request what) { return impl_->ask(std::move(what)); }

task<std::unique_ptr<tcp_store>> tcp_store::impl::connect(boost::asio::any_io_executor executor,
                                                          std::string host, std::uint16_t port,
                                                          std::string secret, int rank, milliseconds timeout,
                                                          tls_identity tls, bootstrap::listener server) {
  const std::string place = bootstrap::host_and_port(host, port);
  const core::time_point deadline = core::deadline_after(timeout);
  bootstrap::endpoints addresses = co_await bootstrap::resolve_host(executor, host, port, deadline);
  if (secret.empty()) {
    std::erase_if(addresses, [](const auto& address) { return !bootstrap::is_loopback(address.address()); });
    if (addresses.empty()) bootstrap::throw_needs_secret(fmt::format("the store at {}", place));
  }
  const core::identity mine{.what = core::purpose::store, .rank = rank};
  std::string last_failure;
  std::optional<core::stream_socket> socket = co_await bootstrap::connect_retry(
      executor, std::move(addresses), secret, std::move(tls), mine, server, deadline, &last_failure);
  if (!socket && server == bootstrap::listener::may_come)
    base::throw_error(errc::join_failed,
                      "rank {} cannot join: rank 0 has not come, or has ended "
                      "already: it does not serve the store at {} "
                      "within {} ({}); start it there, look at its output, and see "
                      "that MASTER_ADDR and MASTER_PORT, or the address in "
                      "init_method, are the same on all ranks",
                      rank, place, base::duration_text(timeout), last_failure);
  if (!socket && core::clock::now() < deadline)
    base::throw_error(
        errc::join_failed,
        "rank {} cannot join: rank 0, which served the store at {}, has ended or has given up joining "
        "({}), and without it no ranks can meet: look at its output, and start the job anew; ranks that "
        "have a world can go on without the others (communicator::shrink), and ranks that take long to "
        "come need a longer TUTTI_TIMEOUT on all",
        rank, place, last_failure);
  if (!socket)
    base::throw_error(errc::join_failed,
                      "rank {} cannot join: rank 0 does not answer at {} within {} ({}); look at its "
                      "output",
                      rank, place, base::duration_text(timeout), last_failure);
  std::unique_ptr<tcp_store> made(new tcp_store(
      std::make_shared<impl>(executor, fmt::format("tcp_store at {}", place), std::move(*socket), timeout)));
  made->set_timeout(timeout);
  co_return std::move(made);
}

task<std::unique_ptr<tcp_store>> tcp_store::connect(boost::asio::any_io_executor executor, std::string host,
                                                    std::uint16_t port, std::string secret, int rank,
                                                    std::chrono::milliseconds timeout, tls_identity tls) {
  return impl::connect(std::move(executor), std::move(host), port, std::move(secret), rank, timeout,
                       std::move(tls), bootstrap::listener::may_come);
}

task<std::unique_ptr<tcp_store>> tcp_store::connect_to_listening(boost::asio::any_io_executor executor,
                                                                 std::string host, std::uint16_t port,
                                                                 std::string secret, int rank,
                                                                 std::chrono::milliseconds timeout,
                                                                 tls_identity tls) {
  return impl::connect(std::move(executor), std::move(host), port, std::move(secret), rank, timeout,
                       std::move(tls), bootstrap::listener::has_come);
}

// ---- the server ----

struct tcp_store_server::impl {
  // Outstanding at once, from one client.
  static constexpr std::size_t most_requests = 4096;
  static constexpr std::size_t most_waiting_bytes = bootstrap::message_stream::most_queued_bytes;

  impl(asio::any_io_executor e, std::string secret, tls_identity tls, std::vector<base::unique_fd> sockets,
       std::unique_ptr<store> other = nullptr);

  bool has_room();
  task<> serve(core::stream_socket socket);
  // `waiting`: the bytes of requests that wait for their answer, from that client.
  task<> answer(bootstrap::message_stream& to, store_request request, std::size_t bytes,
                std::size_t* waiting);

  asio::any_io_executor executor;
  tcp::endpoint at;  // the first that it listens at
  memory_store local;
  const std::unique_ptr<store> instead;  // null: that one is served
  core::wakeup empty;                    // the last client has left
  int clients = 0;
  bool full_reported = false;
  bootstrap::acceptor acceptor;
  core::background_tasks connections;  // last: its tasks use the others
};

tcp_store_server::impl::impl(asio::any_io_executor e, std::string secret, tls_identity tls,
                             std::vector<base::unique_fd> sockets, std::unique_ptr<store> other)
    : executor(e),
      at(bootstrap::local_endpoint(sockets.front().get()).value()),
      local(e, std::make_shared<bootstrap::store_contents>(),
            fmt::format("tcp_store at {}", bootstrap::host_and_port(at.address().to_string(), at.port()))),
      instead(std::move(other)),
      empty(e),
      acceptor(
          e, local.name(), std::move(secret), std::move(tls), core::purpose::store,
          [this](core::stream_socket socket, const core::identity&) {
            connections.start(serve(std::move(socket)));
          },
          {}, [this] { return has_room(); }) {
  for (base::unique_fd& socket : sockets) acceptor.open(std::move(socket));
}

// Of the descriptors that this process may open, a sixteenth is for all else.
bool tcp_store_server::impl::has_room() {
  constexpr rlim_t least_for_all_else = 16;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return true;
  if (static_cast<rlim_t>(clients + acceptor.unproved()) <
      files.rlim_cur - std::max<rlim_t>(files.rlim_cur / 16, least_for_all_else))
    return true;
  if (!std::exchange(full_reported, true))
    base::log_warning(
        fmt::format("{} takes no further clients for now: it has {}, and this process may open {} "
                    "files; raise `ulimit -n`",
                    local.name(), clients, files.rlim_cur));
  return false;
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
  std::size_t waiting_bytes = 0;
  core::background_tasks requests;
  try {
    for (;;) {
      co_await stream.room();
      const std::optional<std::string> message = co_await stream.receive();
      if (!message) break;
      store_request request = bootstrap::decode_request(*message);
      const std::size_t bytes = message->size();
      if (requests.running() < most_requests && waiting_bytes + bytes <= most_waiting_bytes) {
        requests.start(answer(stream, std::move(request), bytes, &waiting_bytes));
        continue;
      }
      store_answer refusal;
      refusal.number = request.number;
      refusal.code = errc::resources;
      refusal.text = fmt::format(
          "{}: one client has more than {} requests, or {} bytes of them, outstanding; await some of "
          "them first",
          local.name(), most_requests, most_waiting_bytes);
      stream.send(base::to_bytes(refusal));
    }
  } catch (const error& e) {
    // Its rank reports a client that dies; this process reports one that breaks the protocol.
    if (e.code() == errc::protocol)
      base::log_warning(fmt::format("{}: dropped a client: {}", local.name(), e.what()));
  } catch (const std::bad_alloc&) {
    base::log_warning(fmt::format("{}: dropped a client: no memory for its request", local.name()));
  }
}

task<> tcp_store_server::impl::answer(bootstrap::message_stream& to, store_request request, std::size_t bytes,
                                      std::size_t* waiting) {
  const std::uint64_t number = request.number;
  store_answer answer;
  *waiting += bytes;
  try {
    store& served = instead != nullptr ? *instead : static_cast<store&>(local);
    answer = co_await served.perform(std::move(request));
  } catch (const error& e) {
    answer.code = static_cast<errc>(e.code().value());
    answer.text = e.what();
  } catch (const std::bad_alloc&) {
    answer.code = errc::resources;
    answer.text = fmt::format("{}: the process that serves it has no memory for this", local.name());
  }
  *waiting -= bytes;
  answer.number = number;
  try {
    to.send(base::to_bytes(answer));
  } catch (const std::bad_alloc&) {
    to.close();
  }
}

tcp_store_server::tcp_store_server(std::shared_ptr<impl> i) : impl_(std::move(i)) {}
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

void warn_of_no_secret(const std::string& place) {
  base::log_warning(
      fmt::format("the store at {} is served without a secret: every user of this host can join the "
                  "job, and read and change its data; set TUTTI_SECRET to the same text on all ranks "
                  "(openssl rand -hex 32)",
                  place));
}

// Returns a socket that listens at `at`, or none if the address is not of this host.
base::unique_fd listening_socket(const tcp::endpoint& at, const std::string& place) {
  base::unique_fd fd = bootstrap::listen_at(at);
  const int code = errno;
  if (fd || code == EADDRNOTAVAIL || code == EAFNOSUPPORT) return fd;
  if (core::out_of_resources(code))
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
    warn_of_no_secret(place);
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
  auto made = std::make_shared<impl>(executor, std::move(secret), std::move(tls), std::move(sockets));
  co_return std::unique_ptr<tcp_store_server>(new tcp_store_server(std::move(made)));
}

std::unique_ptr<tcp_store_server> tcp_store_server::adopt(asio::any_io_executor executor,
                                                          int listening_descriptor, std::string secret,
                                                          tls_identity tls, std::unique_ptr<store> instead) {
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
  if (secret.empty()) warn_of_no_secret(core::endpoint_text(*at));
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  std::vector<base::unique_fd> sockets;
  sockets.push_back(std::move(fd));
  auto made = std::make_shared<impl>(executor, std::move(secret), std::move(tls), std::move(sockets),
                                     std::move(instead));
  return std::unique_ptr<tcp_store_server>(new tcp_store_server(std::move(made)));
}

}  // namespace tutti
