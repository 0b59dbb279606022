// SPDX-License-Identifier: Apache-2.0
// What start-up learns about the world, for the transports.
#pragma once

#include "core/host_map.hpp"
#include "core/peer_records.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <tutti/tls.hpp>

namespace tutti::core {

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
  host_map hosts;
  peer_records peers;

  // See peer_records::record_or_kind(). Of this rank and those of its host it is the record.
  const endpoint_record& record(int rank_) const noexcept { return peers.record_or_kind(rank_); }
  // "rank 2 (host b, pid 77)", or "rank 2" if its record is not known.
  std::string describe(int rank_) const {
    const endpoint_record* const of = peers.find(rank_);
    if (of == nullptr) return "rank " + std::to_string(rank_);
    return "rank " + std::to_string(rank_) + " (host " + of->host + ", pid " + std::to_string(of->pid) + ")";
  }
};

}  // namespace tutti::core
