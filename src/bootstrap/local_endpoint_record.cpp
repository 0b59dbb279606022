// SPDX-License-Identifier: Apache-2.0
// What this process can say about itself and its host.
#include "base/env.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/host_identity.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bootstrap {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

// Equal for processes that see each other's abstract sockets: one kernel, one network namespace.
// TUTTI_HOST_ID simulates another host. As a list by rank ("a,a,b,b") it simulates several hosts.
std::string pretended_host(int rank) {
  const auto said = base::env_string("TUTTI_HOST_ID");
  if (!said) return {};
  std::string_view rest = *said;
  if (rest.find(',') == rest.npos) return *said;
  for (; rank > 0 && rest.find(',') != rest.npos; --rank) rest.remove_prefix(rest.find(',') + 1);
  return std::string(rest.substr(0, rest.find(',')));
}

std::string own_host_identity(const std::string& host, int rank) {
  std::string kernel;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> kernel;
  if (kernel.empty()) kernel = host;
  struct stat space = {};
  const bool known = ::stat("/proc/self/ns/net", &space) == 0;
  return core::host_identity(kernel, known ? std::to_string(space.st_ino) : "0", pretended_host(rank));
}

std::uint64_t pid_space() {
  struct stat space = {};
  return ::stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

// A hexadecimal number with core 0 in its lowest bit; empty if the kernel does not say.
std::string usable_cpus() {
  for (std::size_t cpus = 1024; cpus <= (1u << 20); cpus *= 2) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    const auto set = reinterpret_cast<cpu_set_t*>(mask.data());
    const std::size_t bytes = mask.size() * sizeof(unsigned long);
    if (::sched_getaffinity(0, bytes, set) != 0) {
      if (errno == EINVAL) continue;  // more cores than that
      return {};
    }
    std::string digits;
    for (std::size_t nibble = cpus / 4; nibble-- > 0;) {
      unsigned value = 0;
      for (std::size_t bit = 0; bit < 4; ++bit)
        if (CPU_ISSET_S(nibble * 4 + bit, bytes, set)) value |= 1u << bit;
      if (value != 0 || !digits.empty()) digits.push_back("0123456789abcdef"[value]);
    }
    return digits;
  }
  return {};
}

}  // namespace

core::endpoint_record local_endpoint_record(int rank) {
  core::endpoint_record record;
  record.rank = rank;
  record.number = rank;
  record.host = host_name();
  record.pid = ::getpid();
  record.pid_space = pid_space();
  record.host_id = own_host_identity(record.host, rank);
  record.cpus = usable_cpus();
  return record;
}

}  // namespace tutti::bootstrap
