// SPDX-License-Identifier: Apache-2.0
// What start-up learns about the world, for the transports.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/tls.hpp>
#include <vector>

namespace tutti::core {

// "<kernel>:<network namespace>:<user>", and ":<name>" of a simulated host. Ranks with equal identities share memory.
inline std::string host_identity(const std::string& kernel, const std::string& network,
                                 const std::string& user, const std::string& pretended) {
  return kernel + ":" + network + ":" + user + (pretended.empty() ? "" : ":" + pretended);
}

// Whether ranks of these identities reach each other over loopback, as users and simulated hosts of one machine do.
inline bool share_loopback(std::string_view a, std::string_view b) noexcept {
  const auto real = [](std::string_view id) {
    const std::size_t network = id.find(':');
    return network == id.npos ? id : id.substr(0, id.find(':', network + 1));
  };
  return real(a) == real(b);
}

// How to reach one rank; each rank publishes its own record while the world forms.
struct endpoint_record {
  int rank = -1;
  int number = -1;              // with which its launcher started it: its rank, until ranks are renumbered
  std::string host;             // for people
  std::int64_t pid = 0;         // for people, and for ranks that share_pids()
  std::uint64_t pid_space = 0;  // the pid namespace; 0: not known
  std::string host_id;          // host_identity()
  std::string shm_address;      // abstract AF_UNIX name of its listener (without the leading 0); empty: none
  std::string tcp_endpoint;     // "address:port", numeric, or "[v6]:port"; empty: none
  std::string ucx_endpoint;     // likewise, of the connections beside UCX; empty: this rank does without UCX
  std::string cpus;             // the cores it may use, as a hexadecimal mask
  std::string cache;            // base::cache_of() these
};

// Whether the processes of these ranks know each other by their pids. Numbers of namespaces are of one kernel only.
inline bool share_pids(const endpoint_record& a, const endpoint_record& b) noexcept {
  return a.pid_space != 0 && a.pid_space == b.pid_space && share_loopback(a.host_id, b.host_id);
}

inline constexpr std::size_t usual_tcp_connections = 1;
inline constexpr std::size_t most_tcp_connections = 8;

// What a job settles for its worlds.
struct world_settings {
  std::string secret;      // empty: none, and then all addresses are loopback
  tls_identity tls;        // of connections over a network; null: none
  bool checksums = false;  // of the payload of frames that go over a network
  // The number of connections of a TCP link for its long messages; the peer has a number of its own.
  std::size_t tcp_connections = usual_tcp_connections;
  std::chrono::milliseconds timeout{0};  // of joining and connecting, and the default of every operation
  // Silence after which a host that an operation waits for counts as dead; zero: never.
  std::chrono::milliseconds silence_limit{3000};
  // Time after which a stopped process that an operation waits for counts as dead; zero: never.
  std::chrono::milliseconds suspect_grace{30'000};
};

struct world_info : world_settings {
  std::uint64_t id = 0;  // random, the same on all ranks, different for every world
  int rank = 0;
  int size = 1;
  std::uint32_t epoch = 0;
  std::vector<endpoint_record> peers;  // by rank

  const endpoint_record& record(int rank_) const { return peers[static_cast<std::size_t>(rank_)]; }
  // "rank 2 (host b, pid 77)"
  std::string describe(int rank_) const {
    const endpoint_record& of = record(rank_);
    return "rank " + std::to_string(rank_) + " (host " + of.host + ", pid " + std::to_string(of.pid) + ")";
  }
};

}  // namespace tutti::core
