// SPDX-License-Identifier: Apache-2.0
#include "launch/store_relay.hpp"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <tutti/error.hpp>

#include "bootstrap/address.hpp"
#include "bootstrap/elastic_store.hpp"
#include "bootstrap/environment.hpp"
#include "bootstrap/relayed_store.hpp"
#include "launch/store_socket.hpp"

namespace tutti::launch {

int store_relay::open(const start_ranks& start) {
  server_.reset();
  port_ = 0;
  const bool is_here = options_.store.empty() && options_.node_rank == 0;
  if (!options_.elastic || is_here) return 0;
  base::unique_fd listening = bootstrap::listen_at({boost::asio::ip::address_v4::loopback(), 0});
  if (!listening) return 0;
  port_ = port_of(listening);
  calls_.spawn(serve(std::move(listening), start));
  return port_;
}

task<std::unique_ptr<store>> store_relay::connect(start_ranks start, std::chrono::milliseconds most) {
  const std::chrono::milliseconds timeout = std::min(options_.node_timeout, most);
  const auto executor = loop_.get_executor();
  if (!options_.store.empty()) {
    std::unique_ptr<store> in_etcd =
        co_await etcd_store::connect(executor, store_of_run(options_, start.job_id), timeout,
                                     bootstrap::launcher_tls_of_etcd(options_.store));
    co_return std::move(in_etcd);
  }
  std::unique_ptr<store> of_node_0 = co_await tcp_store::connect_to_listening(
      executor, options_.master->host, static_cast<std::uint16_t>(start.ports.store), secret_,
      start.first_rank, timeout, tls_);
  co_return std::move(of_node_0);
}

task<> store_relay::serve(base::unique_fd listening, start_ranks start) {
  try {
    std::unique_ptr<store> of = co_await connect(start, options_.node_timeout);
    if (port_of(listening) != port_) co_return;  // of an earlier start
    auto here = std::make_unique<bootstrap::relayed_store>(
        loop_.get_executor(), std::move(of), bootstrap::serves_others,
        [this, start](std::chrono::milliseconds most) { return connect(start, most); });
    server_ = tcp_store_server::adopt(loop_.get_executor(), listening.get(), secret_, tls_, std::move(here));
    listening.release();
  } catch (const error&) {
    // the ranks learn why themselves
  }
}

}  // namespace tutti::launch
