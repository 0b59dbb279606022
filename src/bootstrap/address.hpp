// SPDX-License-Identifier: Apache-2.0
// Host names as addresses, and sockets that listen there.
#pragma once

#include "base/unique_fd.hpp"
#include "core/platform.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::bootstrap {

using endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

// The answer of a name service.
struct name_answer {
  boost::system::error_code code;
  endpoints found;
};
// Asks the name service once. Completes with timed_out if the deadline passes first.
using name_lookup = task<name_answer> (*)(boost::asio::any_io_executor executor, std::string host,
                                          std::uint16_t port, core::time_point deadline);
task<name_answer> ask_system(boost::asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline);

// Returns all addresses of a host, in the resolver's order, each once. Numeric ones need no resolver, and an
// IPv6 address may have brackets. A
// well-formed but unknown name is asked for again until the deadline, because its host may start later; a
// warning then says what is awaited. Lookups run on a thread of Asio. Errors: invalid_argument (a malformed
// name, or one still unknown at the deadline), timed_out (no answer).
task<endpoints> resolve_host(boost::asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline, name_lookup ask = ask_system);
// The same for a thread without a loop, which it blocks.
endpoints resolve_host_blocking(const std::string& host, std::uint16_t port, core::time_point deadline);

// The addresses to listen at, of a host that has been resolved here: all, if this host knows the name as
// loopback only. Many hosts know their own name as 127.0.1.1, while others know their real address.
endpoints listening_addresses(const std::string& host, endpoints found);
// Returns a non-blocking listening socket that is closed on exec. Empty: errno says why.
base::unique_fd listen_at(const boost::asio::ip::tcp::endpoint& at);
// The local address of an IP socket; nullopt for any other descriptor.
std::optional<boost::asio::ip::tcp::endpoint> local_endpoint(int fd);

// Returns the local address of packets to `to`; unspecified if nothing leads there. Sends nothing.
boost::asio::ip::address source_address_towards(const boost::asio::ip::address& to);
// That of packets to other hosts, by the default route; unspecified if there is none.
boost::asio::ip::address source_address_by_default();

// Whether it is in 127.0.0.0/8, ::1, or the former written as IPv6.
bool is_loopback(const boost::asio::ip::address& address);
// "127.0.0.1:29500", "[::1]:29500", "name:29500".
std::string host_and_port(const std::string& host, std::uint16_t port);

// Throws the error for an address off loopback without a secret, with the cure.
[[noreturn]] void throw_needs_secret(const std::string& what);

}  // namespace tutti::bootstrap
