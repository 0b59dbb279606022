// SPDX-License-Identifier: Apache-2.0
// The client: one connection, one task that reads answers, and requests that wait for their answer by number.
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/acceptor.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/message_stream.hpp"
#include "bootstrap/store_request.hpp"
#include "core/handshake.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <tutti/store.hpp>
#include <unordered_map>
#include <utility>

namespace tutti {

using bootstrap::store_answer;
using bootstrap::store_request;

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

  impl(boost::asio::any_io_executor e, std::string n, core::stream_socket s)
      : executor(std::move(e)),
        name(std::move(n)),
        stream(std::move(s), SIZE_MAX) {  // requests wait in memory of their callers anyway
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
  const milliseconds for_answer = what.timeout_ms == 0 ? milliseconds(10'000) : what.timeout();
  const core::time_point deadline = core::deadline_after(for_answer);
  const std::string title = bootstrap::title_of(what, name);
  if (!broken) {
    pending mine(*this);
    what.number = mine.number;
    stream.send(bootstrap::encode(what));
    const bool in_time = co_await mine.answered.wait(deadline, title);
    if (!in_time && !(what.waits() && what.timeout_ms > 0))
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

tcp_store::tcp_store(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
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
      std::make_unique<impl>(executor, fmt::format("tcp_store at {}", place), std::move(*socket))));
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

}  // namespace tutti
