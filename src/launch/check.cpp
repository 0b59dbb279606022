// SPDX-License-Identifier: Apache-2.0
#include "launch/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <tutti/scope.hpp>
#include <tutti/store.hpp>
#include <vector>

#include "base/cores.hpp"
#include "base/env.hpp"
#include "base/rdma_devices.hpp"
#include "base/ucx_library.hpp"
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

// Each check prints what it finds, and returns whether it is well.

bool problem(std::string_view cure) {
  fmt::print("  problem: {}\n", cure);
  return false;
}

bool check_secret(const options& o) {
  const bool in_variable = base::env_string("TUTTI_SECRET").has_value();
  fmt::print("secret: {}\n", o.secret_fd >= 0 ? "comes from --secret-fd"
                             : in_variable    ? "in TUTTI_SECRET"
                             : o.nodes == 1   ? "none; tutti-run makes one for a single node"
                                              : "none");
  return o.secret_fd >= 0 || in_variable || o.nodes == 1 ||
         problem("set TUTTI_SECRET to the same random text on every node (openssl rand -hex 32)");
}

bool check_tls() {
  try {
    fmt::print("TLS: {}\n", bootstrap::launcher_tls() != nullptr
                                ? "between launchers and between ranks (TUTTI_TLS)"
                                : "off");
    return true;
  } catch (const std::exception& e) {
    fmt::print("{}\n", e.what());
    return problem("set TUTTI_TLS and the variables that begin with TUTTI_TLS_ right, or unset them");
  }
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

task<> ask_store(boost::asio::any_io_executor executor, std::string url, std::string* trouble) {
  try {
    const tls_identity tls = bootstrap::launcher_tls_of_etcd(url);
    co_await etcd_store::connect(executor, url, longest_connect, tls);
    trouble->clear();
  } catch (const std::exception& e) {
    *trouble = e.what();
  }
}

bool check_port(const options& o) {
  try {
    open_rendezvous_sockets(*o.master, std::min(o.join_timeout, longest_lookup));
    fmt::print("port: {} is free here for the other nodes to come to\n", o.master->port);
    return true;
  } catch (const std::exception& e) {
    fmt::print("port: {}\n", e.what());
    return problem("give --master an address of this node, and a port that is free here");
  }
}

bool check_way(const options& o) {
  bootstrap::endpoints places;
  try {
    places = bootstrap::resolve_host_blocking(
        o.master->host, static_cast<std::uint16_t>(o.master->port),
        std::chrono::steady_clock::now() + std::min(o.join_timeout, longest_lookup));
  } catch (const std::exception& e) {
    fmt::print("name: {}\n", e.what());
    return problem(
        "correct --master; under Kubernetes, make a headless Service that selects the pods, and set their "
        "subdomain to its name");
  }
  std::vector<std::string> failures;
  for (const auto& place : places) {
    const std::string address = place.address().to_string();
    fmt::print("name: {} is {}\n", o.master->host, address);
    if (const auto own = bootstrap::source_address_towards(place.address()); !own.is_unspecified())
      fmt::print("address: others reach this node at {}, from which the route to {} leaves\n",
                 own.to_string(), address);
    const int error = connect_once(place);
    if (error == 0)
      fmt::print("node 0: listens at {} port {}\n", address, o.master->port);
    else if (error == ECONNREFUSED)
      fmt::print(
          "node 0: its host answers at {}, and nothing listens at port {} yet: tutti-run does not run there, "
          "or has another port\n",
          address, o.master->port);
    else
      failures.push_back(fmt::format("{}: {}", address, std::strerror(error)));
  }
  if (failures.size() < places.size()) return true;
  fmt::print("node 0: out of reach ({})\n", fmt::join(failures, ", "));
  return problem(
      "let TCP through to that address (firewall, network policy), or give --master another address of node "
      "0");
}

// The etcd in which launchers and ranks meet.
bool check_store(const options& o) {
  boost::asio::io_context loop;
  std::string trouble = "no answer";
  scope asking;
  asking.spawn(ask_store(loop.get_executor(), o.store, &trouble));
  loop.run_for(2 * longest_connect);
  if (trouble.empty()) fmt::print("store: an etcd answers for {}\n", o.store);
  return trouble.empty() || problem(trouble);
}

bool check_shared_memory() {
  struct statvfs memory{};
  if (::statvfs("/dev/shm", &memory) != 0) {
    fmt::print("/dev/shm: {}\n", std::strerror(errno));
    return problem("mount a tmpfs there");
  }
  const auto bytes = [&](fsblkcnt_t blocks) { return 1ULL * blocks * memory.f_frsize; };
  const unsigned long long free = bytes(memory.f_bavail);
  fmt::print("/dev/shm: {} MiB, {} MiB of them free\n", bytes(memory.f_blocks) / mebibyte, free / mebibyte);
  return free >= least_shared_memory ||
         problem(
             "give it 64 MiB or more: docker run --shm-size, an emptyDir with medium Memory in Kubernetes, "
             "or remove what is left in it");
}

// Whether ranks of this node use UCX between hosts, and why or why not. By default they do where a device can.
bool check_rdma() {
  const std::vector<base::rdma_port> ports = base::rdma_ports();
  for (const base::rdma_port& port : ports)
    fmt::print("RDMA: {} ({}, {}){}\n", port.name, port.layer, port.rate, port.active ? "" : ", not active");
  const std::string chosen = "," + base::env_string("TUTTI_TRANSPORTS").value_or("") + ",";
  const bool named = chosen.find(",ucx,") != chosen.npos;
  const auto not_used = [](std::string_view why) { fmt::print("UCX: not used, since {}\n", why); };
  if (base::env_string("TUTTI_TLS") == "1") {
    not_used("it encrypts nothing, and TUTTI_TLS is set");
    return !named || problem("leave ucx out of TUTTI_TRANSPORTS, or unset TUTTI_TLS");
  }
  if (!named) {
    if (chosen != ",,") {
      not_used("TUTTI_TRANSPORTS leaves it out");
      return true;
    }
    if (!base::any_active(ports)) {
      not_used("this host has no RDMA device with an active port: TCP is used between hosts");
      return true;
    }
  }
  try {
    const base::ucx_library& ucx = base::ucx_library::of_this_process();
    ucx.context(!named, 2);
    fmt::print("UCX: version {}, used between hosts\n", ucx.version());
    return true;
  } catch (const std::exception& e) {
    not_used(e.what());
    return !named || problem("make UCX work on this node, or leave ucx out of TUTTI_TRANSPORTS");
  }
}

void print_limits() {
  const auto text = [](auto resource) {
    rlimit limit{};
    ::getrlimit(resource, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  };
  fmt::print("limits: {} open files, {} bytes of locked memory\n", text(RLIMIT_NOFILE), text(RLIMIT_MEMLOCK));
}

void print_binding(const options& o) {
  const std::vector<rank_place> places = places_of_ranks(o.bind, std::max(1, o.ranks), base::cpu_mask());
  if (o.bind == binding::none) {
    fmt::print(
        "cores: {} for all ranks of this node together; --bind core, cache or numa gives each its own\n",
        base::usable_cores());
    return;
  }
  for (std::size_t r = 0; r < places.size(); ++r)
    fmt::print("cores: {} for the node's rank {}\n", fmt::join(places[r].cores, ","), r);
}

// A misspelt variable changes nothing, and nothing says so.
void print_unknown_variables() {
  for (char** each = ::environ; *each != nullptr; ++each) {
    const std::string_view name = std::string_view(*each).substr(0, std::strcspn(*each, "="));
    const auto has_this_name = [&](const base::variable& v) { return v.name == name; };
    if (name.starts_with("TUTTI_") && std::ranges::none_of(base::variables(), has_this_name))
      fmt::print("variable: tutti reads no {} (tutti-run --variables lists what it reads)\n", name);
  }
}

}  // namespace

int run_check(const options& o) {
  fmt::print("node: {} of {}{}\n", o.node_rank, o.nodes,
             !o.store.empty() ? ""
             : o.master       ? fmt::format("; node 0 is at {} port {}", o.master->host, o.master->port)
                              : "");
  bool well = check_secret(o);
  well &= check_tls();
  well &= check_shared_memory();
  well &= check_rdma();
  print_limits();
  print_binding(o);
  print_unknown_variables();
  if (!o.store.empty())
    well &= check_store(o);
  else if (o.master)
    well &= o.node_rank == 0 ? check_port(o) : check_way(o);
  return well ? 0 : 1;
}

}  // namespace tutti::launch
