// SPDX-License-Identifier: Apache-2.0
// Host names as addresses.
#pragma once

#include "core/platform.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <string>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::bootstrap {

using endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

// What a name service has answered.
struct name_answer {
  boost::system::error_code code;
  endpoints found;
};
// Asks the name service once. Completes with timed_out when the deadline passes first.
using name_lookup = task<name_answer> (*)(boost::asio::any_io_executor executor, std::string host,
                                          std::uint16_t port, core::time_point deadline);
task<name_answer> ask_system(boost::asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline);

// All addresses of a host, in the resolver's order, each once. Numeric ones take no resolver. A well-formed
// name that is unknown is asked for again until the deadline, because its host may start later; a warning
// then says what is being waited for. The lookups run on a thread of Asio's. Errors: invalid_argument (a
// malformed name, or one still unknown at the deadline), timed_out (no answer).
task<endpoints> resolve_host(boost::asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline, name_lookup ask = ask_system);
// The same for a thread without a loop, which it blocks.
endpoints resolve_host_blocking(const std::string& host, std::uint16_t port, core::time_point deadline);

bool is_numeric(const std::string& host);
// The unspecified address of IPv4 and of IPv6.
endpoints every_address(std::uint16_t port);
// 127.0.0.0/8, ::1, and the former written as IPv6.
bool is_loopback(const boost::asio::ip::address& address);
// "127.0.0.1:29500", "[::1]:29500", "name:29500".
std::string host_and_port(const std::string& host, std::uint16_t port);

// Why an address off loopback is refused without a secret, and the cure.
[[noreturn]] void throw_needs_secret(const std::string& what);

}  // namespace tutti::bootstrap
