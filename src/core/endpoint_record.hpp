// SPDX-License-Identifier: Apache-2.0
// endpoint_record: how to reach one rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// Of an endpoint as in endpoint_record.
inline bool is_loopback(std::string_view endpoint) noexcept {
  return endpoint.starts_with("127.") || endpoint.starts_with("[::1]:");
}

// Each rank publishes its own while the world forms.
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
  std::uint64_t arrival = 0;    // where nodes come and go: membership::arrival::place
};

// Whether the processes of these ranks know each other by their pids. Numbers of namespaces are of one kernel only.
inline bool share_pids(const endpoint_record& a, const endpoint_record& b) noexcept {
  return a.pid_space != 0 && a.pid_space == b.pid_space && share_loopback(a.host_id, b.host_id);
}

}  // namespace tutti::core
