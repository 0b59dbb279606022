// SPDX-License-Identifier: Apache-2.0
#include "common/targets.hpp"

#include <cstdio>

namespace perf {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr auto shared = memory::shared;

constexpr target aims[] = {
    {.what = command::latency, .transport = "shm", .bytes = 8, .ratio = 0.95},
    {.what = command::latency, .transport = "shm", .bytes = KiB, .ratio = 0.85},
    {.what = command::latency, .transport = "shm", .from_bytes = 8 * KiB, .ratio = 0.95},
    {.what = command::latency, .transport = "shm", .from_bytes = 64 * KiB, .where = shared, .ratio = 0.5},
    {.what = command::message_rate, .transport = "shm", .bytes = 8, .ratio = 1.2},
    {.what = command::bandwidth, .transport = "shm", .from_bytes = 64 * KiB, .ratio = 0.9},

    {.what = command::put_signal, .transport = "shm", .ratio = 0.8},
    {.what = command::put_signal, .transport = "shm", .where = shared, .ratio = 0.8},

    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .to_bytes = MiB, .ratio = 0.85},
    {.what = command::all_reduce, .transport = "shm", .ranks = 2, .from_bytes = MiB + 1, .ratio = 0.5},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 2,
     .from_bytes = MiB,
     .where = shared,
     .against = "limit",
     .ratio = 2},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .to_bytes = MiB,
     .ratio = 0.85,
     .cpu_too = true},
    {.what = command::all_reduce,
     .transport = "shm",
     .ranks = 4,
     .from_bytes = MiB + 1,
     .ratio = 0.5,
     .cpu_too = true},

    {.what = command::barrier, .transport = "shm", .ratio = 0.9},
    {.what = command::broadcast, .transport = "shm", .ratio = 0.9},
    {.what = command::all_gather, .transport = "shm", .ratio = 0.9},
    {.what = command::reduce_scatter, .transport = "shm", .ratio = 0.9},
    {.what = command::all_to_all, .transport = "shm", .ratio = 0.9},

    {.transport = "tcp", .to_bytes = 16 * MiB - 1, .ratio = 1.0},
    {.transport = "tcp", .from_bytes = 16 * MiB, .ratio = 0.8},
    {.what = command::latency, .transport = "tcp", .bytes = 8, .against = "gloo", .ratio = 0.15},

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
  if (aim.what ? *aim.what != what : what == command::overlap || what == command::startup) return false;
  if (aim.where != where) return false;
  if (!aim.transport.empty() && aim.transport != transport) return false;
  if (aim.ranks != 0 && aim.ranks != ranks) return false;
  return aim.bytes != 0 ? aim.bytes == bytes : bytes >= aim.from_bytes && bytes <= aim.to_bytes;
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
