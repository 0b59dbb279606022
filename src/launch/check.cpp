// SPDX-License-Identifier: Apache-2.0
#include "launch/job.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.hpp"
#include "bootstrap/address.hpp"
#include "bootstrap/environment.hpp"
#include "launch/store_socket.hpp"

namespace tutti::launch {
namespace {

constexpr std::chrono::milliseconds longest_lookup{30000};
constexpr std::chrono::milliseconds longest_connect{5000};
constexpr unsigned long long mebibyte = 1 << 20;
constexpr unsigned long long least_shared_memory = 64 * mebibyte;

using boost::asio::ip::tcp;

struct finding {
  std::string text;
  std::string cure = {};  // empty: no problem
};

finding place_of_node(const options& o) {
  const std::string where =
      o.master ? fmt::format("; node 0 is at {} port {}", o.master->host, o.master->port) : "";
  return {fmt::format("node: {} of {}{}", o.node_rank, o.nodes, where)};
}

finding secret_of_node(const options& o) {
  if (o.secret_fd >= 0) return {"secret: comes from --secret-fd"};
  if (base::env_string("TUTTI_SECRET")) return {"secret: in TUTTI_SECRET"};
  if (o.nodes == 1) return {"secret: none; tutti-run makes one for a single node"};
  return {"secret: none", "set TUTTI_SECRET to the same random text on every node (openssl rand -hex 32)"};
}

finding tls_of_node() {
  try {
    return {fmt::format("TLS: {}", bootstrap::launcher_tls() != nullptr
                                       ? "between launchers and between ranks (TUTTI_TLS)"
                                       : "off")};
  } catch (const std::exception& e) {
    return {e.what(), "set TUTTI_TLS and the variables that begin with TUTTI_TLS_ right, or unset them"};
  }
}

// The local address that the kernel's route gives to packets to `to`.
std::string address_towards(const tcp::endpoint& to) {
  boost::asio::io_context loop;
  boost::asio::ip::udp::socket socket(loop);
  boost::system::error_code failed;
  socket.connect({to.address(), to.port()}, failed);
  return failed ? "" : socket.local_endpoint().address().to_string();
}

// Returns 0, or the error of a connection that is closed at once.
int connect_once(const tcp::endpoint& to) {
  boost::asio::io_context loop;
  tcp::socket socket(loop);
  boost::system::error_code result = boost::asio::error::timed_out;
  socket.async_connect(to, [&result](const boost::system::error_code& code) { result = code; });
  loop.run_for(longest_connect);
  return result.value();
}

void find_listening(const options& o, std::vector<finding>& found) {
  try {
    open_rendezvous_sockets(*o.master, std::min(o.join_timeout, longest_lookup));
    found.push_back({fmt::format("port: {} is free here for the other nodes to come to", o.master->port)});
  } catch (const std::exception& e) {
    found.push_back({fmt::format("port: {}", e.what()),
                     "give --master an address of this node, and a port that is free here"});
  }
}

void find_way(const options& o, std::vector<finding>& found) {
  bootstrap::endpoints places;
  try {
    places = bootstrap::resolve_host_blocking(
        o.master->host, static_cast<std::uint16_t>(o.master->port),
        std::chrono::steady_clock::now() + std::min(o.join_timeout, longest_lookup));
  } catch (const std::exception& e) {
    found.push_back({fmt::format("name: {}", e.what()),
                     "correct --master; under Kubernetes, make a headless Service that selects the pods, "
                     "and set their subdomain to its name"});
    return;
  }
  bool reached = false;
  std::string failures;
  for (const auto& place : places) {
    const std::string address = place.address().to_string();
    found.push_back({fmt::format("name: {} is {}", o.master->host, address)});
    const std::string own = address_towards(place);
    if (!own.empty())
      found.push_back({fmt::format("address: others reach this node at {}, from which the route to {} leaves",
                                   own, address)});
    const int error = connect_once(place);
    if (error == 0)
      found.push_back({fmt::format("node 0: listens at {} port {}", address, o.master->port)});
    else if (error == ECONNREFUSED)
      found.push_back(
          {fmt::format("node 0: its host answers at {}, and nothing listens at port {} yet: "
                       "tutti-run does not run there, or has another port",
                       address, o.master->port)});
    else
      failures += fmt::format("{}{}: {}", failures.empty() ? "" : ", ", address, std::strerror(error));
    reached = reached || error == 0 || error == ECONNREFUSED;
  }
  if (!reached)
    found.push_back({fmt::format("node 0: out of reach ({})", failures),
                     "let TCP through to that address (firewall, network policy), or give --master another "
                     "address of node 0"});
}

finding shared_memory() {
  struct statvfs memory{};
  if (::statvfs("/dev/shm", &memory) != 0)
    return {fmt::format("/dev/shm: {}", std::strerror(errno)), "mount a tmpfs there"};
  const auto bytes = [&](fsblkcnt_t blocks) { return 1ULL * blocks * memory.f_frsize; };
  const unsigned long long free = bytes(memory.f_bavail);
  return {
      fmt::format("/dev/shm: {} MiB, {} MiB of them free", bytes(memory.f_blocks) / mebibyte,
                  free / mebibyte),
      free >= least_shared_memory
          ? ""
          : "give it 64 MiB or more: docker run --shm-size, an emptyDir with medium Memory in Kubernetes, "
            "or remove what is left in it"};
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

finding limits() {
  rlimit files{}, locked{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  return {fmt::format("limits: {} open files, {} bytes of locked memory", limit_text(files.rlim_cur),
                      limit_text(locked.rlim_cur))};
}

// A misspelt variable changes nothing, and nothing says so.
void find_unknown_variables(std::vector<finding>& found) {
  for (char** each = ::environ; *each != nullptr; ++each) {
    const std::string_view name = std::string_view(*each).substr(0, std::strcspn(*each, "="));
    const auto has_this_name = [&](const base::variable& v) { return v.name == name; };
    if (name.starts_with("TUTTI_") && std::ranges::none_of(base::variables(), has_this_name))
      found.push_back(
          {fmt::format("variable: tutti reads no {} (tutti-run --variables lists what it reads)", name)});
  }
}

}  // namespace

int run_check(const options& o) {
  std::vector<finding> found = {place_of_node(o), secret_of_node(o), tls_of_node(), shared_memory(),
                                limits()};
  find_unknown_variables(found);
  if (o.master) o.node_rank == 0 ? find_listening(o, found) : find_way(o, found);
  int exit_code = 0;
  for (const finding& each : found) {
    std::printf("%s\n", each.text.c_str());
    if (each.cure.empty()) continue;
    std::printf("  problem: %s\n", each.cure.c_str());
    exit_code = 1;
  }
  return exit_code;
}

}  // namespace tutti::launch
