// SPDX-License-Identifier: Apache-2.0
// Host names as addresses.
#pragma once

#include "core/environment.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::bootstrap {

using endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

// All addresses of a host, in the resolver's order, each once. Numeric ones take no resolver. Throws
// invalid_argument (there is no such host) and timed_out.
task<endpoints> resolve_host(boost::asio::any_io_executor executor, std::string host, std::uint16_t port,
                             core::time_point deadline);

bool is_numeric(const std::string& host);
// 127.0.0.0/8, ::1, and the former written as IPv6.
bool is_loopback(const boost::asio::ip::address& address);
// "127.0.0.1:29500", "[::1]:29500", "name:29500".
std::string host_and_port(const std::string& host, std::uint16_t port);

// Why an address off loopback is refused without a secret, and the cure.
[[noreturn]] void throw_needs_secret(const std::string& what);

}  // namespace tutti::bootstrap
