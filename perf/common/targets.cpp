// SPDX-License-Identifier: Apache-2.0
#include "common/targets.hpp"

#include <cstdio>

namespace perf {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr auto shared = memory::shared;

constexpr target aims[] = {
    {.what = command::latency, .transport = "shm", .bytes = 8, .ratio = 0.75},
    {.what = command::latency, .transport = "shm", .bytes = KiB, .ratio = 0.7},
    {.what = command::latency, .transport = "shm", .bytes = 64 * KiB, .ratio = 0.6},
    {.what = command::latency, .transport = "shm", .bytes = MiB, .ratio = 0.6},
    {.what = command::latency, .transport = "shm", .bytes = 16 * MiB, .ratio = 0.6},
    {.what = command::latency, .transport = "shm", .bytes = 64 * KiB, .where = shared, .ratio = 0.5},
    {.what = command::latency, .transport = "shm", .bytes = MiB, .where = shared, .ratio = 0.5},
    {.what = command::latency, .transport = "shm", .bytes = 16 * MiB, .where = shared, .ratio = 0.5},
    {.what = command::message_rate, .transport = "shm", .bytes = 8, .ratio = 0.8},
    {.what = command::bandwidth, .transport = "shm", .bytes = 64 * KiB, .ratio = 0.5},
    {.what = command::bandwidth, .transport = "shm", .bytes = MiB, .ratio = 0.5},
    {.what = command::bandwidth, .transport = "shm", .bytes = 4 * MiB, .ratio = 0.5},

    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .bytes = 4, .ratio = 0.8},
    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .bytes = KiB, .ratio = 0.8},
    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .bytes = 64 * KiB, .ratio = 0.4},
    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .bytes = MiB, .ratio = 0.55},
    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .bytes = 16 * MiB, .ratio = 0.55},
    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .bytes = 64 * MiB, .ratio = 0.3},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 2,
     .from_bytes = MiB,
     .where = shared,
     .against = "limit",
     .ratio = 2},

    {.what = command::all_reduce, .transport = "shm", .ranks = 4, .bytes = 4, .ratio = 0.8, .cpu_too = true},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .bytes = KiB,
     .ratio = 0.8,
     .cpu_too = true},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .bytes = 64 * KiB,
     .ratio = 0.5,
     .cpu_too = true},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .bytes = MiB,
     .ratio = 0.5,
     .cpu_too = true},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .bytes = 16 * MiB,
     .ratio = 0.4,
     .cpu_too = true},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .bytes = 64 * MiB,
     .ratio = 0.3,
     .cpu_too = true},

    {.what = command::barrier, .transport = "shm", .ratio = 0.8},
    {.what = command::broadcast, .transport = "shm", .bytes = 64 * KiB, .ratio = 0.8},
    {.what = command::broadcast, .transport = "shm", .bytes = 16 * MiB, .ratio = 0.6},
    {.what = command::all_gather, .transport = "shm", .bytes = 64 * KiB, .ratio = 0.8},
    {.what = command::all_gather, .transport = "shm", .bytes = 16 * MiB, .ratio = 0.6},
    {.what = command::reduce_scatter, .transport = "shm", .bytes = 64 * KiB, .ratio = 0.8},
    {.what = command::reduce_scatter, .transport = "shm", .bytes = 16 * MiB, .ratio = 0.6},
    {.what = command::all_to_all, .transport = "shm", .bytes = 64 * KiB, .ratio = 0.8},
    {.what = command::all_to_all, .transport = "shm", .bytes = 16 * MiB, .ratio = 0.6},

    {.what = command::latency, .transport = "tcp", .bytes = 8, .ratio = 1.0},
    {.what = command::latency, .transport = "tcp", .bytes = 64 * KiB, .ratio = 0.7},
    {.what = command::latency, .transport = "tcp", .bytes = MiB, .ratio = 1.0},
    {.what = command::latency, .transport = "tcp", .bytes = 16 * MiB, .ratio = 0.8},
    {.what = command::latency, .transport = "tcp", .bytes = 8, .against = "gloo", .ratio = 0.15},
    {.what = command::all_reduce, .transport = "tcp", .ratio = 0.8},

    {.what = command::startup, .against = "mpi", .ratio = 0.25},

    {.what = command::overlap,
     .from_bytes = 16 * MiB,
     .ratio = 0.97,
     .is = target::rule::at_least,
     .mode = "device",
     .measure = "overlap"},
    {.what = command::overlap, .from_bytes = 16 * MiB, .ratio = 1.1, .mode = "all", .measure = "both/bound"},
    {.what = command::overlap,
     .from_bytes = 16 * MiB,
     .ratio = 1.0,
     .mode = "all",
     .measure = "CPU both/sum"},
};

}  // namespace

std::span<const target> all_targets() noexcept { return aims; }

bool concerns(const target& aim, command what, std::string_view transport, int ranks, std::size_t bytes,
              memory where) noexcept {
  if (aim.what != what || aim.where != where) return false;
  if (!aim.transport.empty() && aim.transport != transport) return false;
  if (aim.ranks != 0 && aim.ranks != ranks) return false;
  return aim.bytes != 0 ? aim.bytes == bytes : bytes >= aim.from_bytes;
}

bool is_against(const target& aim, std::string_view peer) noexcept {
  if (aim.against == "limit" || peer == "limit") return aim.against == peer;
  if (aim.against.empty()) return true;
  if (aim.against == "mpi") return peer.find("mpi") != peer.npos;  // openmpi, mpich
  return peer.substr(0, aim.against.size()) == aim.against;
}

std::string text_of(const target& aim) {
  char number[32];
  std::snprintf(number, sizeof number, "%s %g", aim.is == target::rule::at_most ? "<=" : ">=", aim.ratio);
  std::string text = number;
  if (aim.against == "limit")
    text += " x the limit";
  else if (aim.against == "mpi")
    text += " of the better mpirun";
  else if (!aim.against.empty())
    text += " of " + std::string(aim.against);
  if (aim.cpu_too) text += ", CPU no more";
  return text;
}

}  // namespace perf
