// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/address.hpp"

#include "base/log.hpp"
#include "base/throw_error.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cctype>
#include <cerrno>
#include <exception>
#include <memory>
#include <string_view>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// The address that `host` is, with or without the brackets of an IPv6 address in front of a port.
asio::ip::address numeric_address(std::string_view host, boost::system::error_code& not_numeric) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (!bracketed) return asio::ip::make_address(host, not_numeric);
  return asio::ip::make_address_v6(host.substr(1, host.size() - 2), not_numeric);
}

}  // namespace

endpoints listening_addresses(const std::string& host, endpoints found) {
  boost::system::error_code not_numeric;
  numeric_address(host, not_numeric);
  const auto on_loopback = [](const tcp::endpoint& at) { return is_loopback(at.address()); };
  if (!not_numeric || host == "localhost" || !std::ranges::all_of(found, on_loopback)) return found;
  const std::uint16_t port = found.front().port();
  return {tcp::endpoint(asio::ip::address_v4::any(), port), tcp::endpoint(asio::ip::address_v6::any(), port)};
}

base::unique_fd listen_at(const tcp::endpoint& at) {
  constexpr int backlog = 4096;  // ranks connect while this one computes; the kernel may allow fewer
  const int family = at.protocol().family();
  base::unique_fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int on = 1;  // otherwise the port of a job that just ended could not be used for a minute
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // IPv4 has a socket of its own.
  if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd.get(), at.data(), static_cast<socklen_t>(at.size())) == 0 && ::listen(fd.get(), backlog) == 0)
    return fd;
  const int code = errno;
  fd.reset();
  errno = code;
  return fd;
}

std::optional<tcp::endpoint> local_endpoint(int fd) {
  tcp::endpoint at;
  auto length = static_cast<socklen_t>(at.capacity());
  if (::getsockname(fd, at.data(), &length) != 0 ||
      (at.data()->sa_family != AF_INET && at.data()->sa_family != AF_INET6))
    return std::nullopt;
  at.resize(length);
  return at;
}

asio::ip::address source_address_towards(const asio::ip::address& to) {
  const tcp::endpoint there(to, 9);
  const base::unique_fd probe(::socket(there.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  // Connects a UDP socket to find out.
  if (!probe || ::connect(probe.get(), there.data(), static_cast<socklen_t>(there.size())) != 0) return {};
  const auto mine = local_endpoint(probe.get());
  return mine ? mine->address() : asio::ip::address{};
}

asio::ip::address source_address_by_default() {
  // Reserved for documentation: the route there leads to other hosts.
  for (const char* elsewhere : {"192.0.2.1", "2001:db8::1"}) {
    const asio::ip::address source = source_address_towards(asio::ip::make_address(elsewhere));
    if (!source.is_unspecified() && !source.is_loopback()) return source;
  }
  return {};
}

bool is_loopback(const asio::ip::address& address) {
  if (address.is_loopback()) return true;
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return false;
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
}

std::string host_and_port(const std::string& host, std::uint16_t port) {
  return host.find(':') == std::string::npos || host.starts_with('[') ? fmt::format("{}:{}", host, port)
                                                                      : fmt::format("[{}]:{}", host, port);
}

void throw_needs_secret(const std::string& what) {
  base::throw_error(
      errc::invalid_argument,
      "{} is not on loopback, and without a secret tutti uses loopback only, because anybody could "
      "join the world: set TUTTI_SECRET to the same random text on all ranks (make one with: "
      "openssl rand -hex 32), or start the program with tutti-run, which does",
      what);
}

task<name_answer> ask_system(asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline) {
  // Kept by the resolver's handler, which may come after this coroutine has given up.
  struct outcome {
    core::wakeup done;
    name_answer answer = {};
  };
  const auto shared = std::make_shared<outcome>(outcome{core::wakeup(executor)});
  tcp::resolver resolver(executor);
  resolver.async_resolve(host, std::to_string(port),
                         [shared](boost::system::error_code ec, const tcp::resolver::results_type& results) {
                           shared->answer.code = ec;
                           endpoints& found = shared->answer.found;
                           for (const auto& entry : results)
                             if (std::ranges::find(found, entry.endpoint()) == found.end())
                               found.push_back(entry.endpoint());
                           shared->done.notify();
                         });
  const bool in_time = co_await shared->done.wait(deadline, "looking up " + host);
  if (!in_time) shared->answer.code = asio::error::timed_out;
  co_return std::move(shared->answer);
}

namespace {

constexpr auto first_lookup_pause = std::chrono::milliseconds(100);
constexpr auto longest_lookup_pause = std::chrono::seconds(2);
constexpr auto silent_wait = std::chrono::seconds(5);  // a longer wait is announced

// Letters, digits, hyphens, underscores and non-ASCII characters, between single dots.
bool is_well_formed(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  if (host.empty() || host.size() > 253) return false;
  std::size_t label = 0;
  for (const unsigned char c : host) {
    if (c == '.' ? label == 0 : std::isalnum(c) == 0 && c != '-' && c != '_' && c < 0x80) return false;
    label = c == '.' ? 0 : label + 1;
    if (label > 63) return false;
  }
  const std::string_view last = host.substr(host.rfind('.') + 1);
  // A number at the end makes it an address, and a wrong one.
  return !last.empty() && last.find_first_not_of("0123456789") != last.npos;
}

bool may_resolve_later(const std::string& host, const boost::system::error_code& code) {
  return is_well_formed(host) &&
         (code == asio::error::host_not_found || code == asio::error::host_not_found_try_again ||
          code == asio::error::no_data);
}

[[noreturn]] void throw_no_host(const std::string& host, const boost::system::error_code& code) {
  base::throw_error(
      errc::invalid_argument,
      "there is no host '{}' ({}): give the name or the address of the host that rank 0 runs on", host,
      code.message());
}

task<> keep_endpoints(asio::any_io_executor executor, std::string host, std::uint16_t port,
                      core::time_point deadline, endpoints* found) {
  *found = co_await resolve_host(executor, std::move(host), port, deadline);
}

}  // namespace

task<endpoints> resolve_host(asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline, name_lookup ask) {
  boost::system::error_code code;
  const asio::ip::address numeric = numeric_address(host, code);
  if (!code) co_return endpoints(1, tcp::endpoint(numeric, port));

  const core::time_point began = core::clock::now();
  // A short timeout is announced before it ends.
  const core::time_point announced_at = began + std::min<core::duration>(silent_wait, (deadline - began) / 2);
  bool announced = false;
  core::wakeup pause(executor);
  for (core::duration next = first_lookup_pause;;
       next = std::min<core::duration>(2 * next, longest_lookup_pause)) {
    name_answer answer = co_await ask(executor, host, port, deadline);
    if (!answer.code && !answer.found.empty()) co_return std::move(answer.found);
    if (answer.code == asio::error::timed_out)
      base::throw_error(errc::timed_out,
                        "the name service did not say in time where '{}' is: give the host's "
                        "numeric address",
                        host);
    const core::time_point now = core::clock::now();
    if (!may_resolve_later(host, answer.code)) throw_no_host(host, answer.code);
    if (now >= announced_at && !std::exchange(announced, true))
      base::log_warning(fmt::format(
          "waiting for the host name '{}' to resolve ({}): its host may start later; if the name is wrong, "
          "end the program and correct it (MASTER_ADDR, the address in init_method, or tutti-run --master)",
          host, answer.code.message()));
    co_await pause.wait(std::min(deadline, now + next), "looking up " + host);
    if (core::clock::now() >= deadline) throw_no_host(host, answer.code);
  }
}

endpoints resolve_host_blocking(const std::string& host, std::uint16_t port, core::time_point deadline) {
  endpoints found;
  std::exception_ptr failure;
  asio::io_context context(1);
  core::running_task running;
  running.start(
      keep_endpoints(context.get_executor(), host, port, deadline, &found),
      [](void* to, std::exception_ptr why) noexcept { *static_cast<std::exception_ptr*>(to) = why; },
      &failure);
  context.run();
  if (failure) std::rethrow_exception(failure);
  return found;
}

}  // namespace tutti::bootstrap
