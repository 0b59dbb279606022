// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/address.hpp"

#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tutti/error.hpp>

namespace tutti::bootstrap {

namespace asio = boost::asio;
using asio::ip::tcp;

bool is_numeric(const std::string& host) {
  boost::system::error_code code;
  asio::ip::make_address(host, code);
  return !code;
}

bool is_loopback(const asio::ip::address& address) {
  if (address.is_loopback()) return true;
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return false;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

void throw_needs_secret(const std::string& what) {
  throw error(
      errc::invalid_argument,
      fmt::format(
          "{} is not on loopback, and without a secret tutti uses loopback only, because anybody could "
          "join the world: set TUTTI_SECRET to the same random text on all ranks (make one with: "
          "openssl rand -hex 32), or start the program with tutti-run, which does",
          what));
}

task<endpoints> resolve_host(asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline) {
  boost::system::error_code code;
  const asio::ip::address numeric = asio::ip::make_address(host, code);
  if (!code) co_return endpoints(1, tcp::endpoint(numeric, port));

  // The resolver's answer may come after this coroutine has given up: it then finds `waiting` null.
  struct outcome {
    core::wakeup* waiting;
    boost::system::error_code code;
    endpoints found;
  };
  core::wakeup done(executor);
  const auto shared = std::make_shared<outcome>(outcome{&done, {}, {}});
  struct leave {
    outcome& from;
    ~leave() { from.waiting = nullptr; }
  } leave_at_end{*shared};
  tcp::resolver resolver(executor);
  resolver.async_resolve(host, std::to_string(port),
                         [shared](boost::system::error_code ec, const tcp::resolver::results_type& results) {
                           shared->code = ec;
                           for (const auto& entry : results)
                             if (std::ranges::find(shared->found, entry.endpoint()) == shared->found.end())
                               shared->found.push_back(entry.endpoint());
                           if (shared->waiting != nullptr) shared->waiting->notify();
                         });
  const bool in_time = co_await done.wait(deadline);
  if (!in_time)
    throw error(errc::timed_out,
                fmt::format("the name service did not say in time where '{}' is: give the host's "
                            "numeric address",
                            host));
  if (shared->code || shared->found.empty())
    throw error(
        errc::invalid_argument,
        fmt::format(
            "there is no host '{}' ({}): give the name or the address of the host that rank 0 runs on", host,
            shared->code.message()));
  co_return std::move(shared->found);
}

}  // namespace tutti::bootstrap
