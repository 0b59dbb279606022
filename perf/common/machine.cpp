// SPDX-License-Identifier: Apache-2.0
#include "common/machine.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>
#include <thread>

namespace perf {
namespace {

// The text after "`key`:" in the first line of `file` that begins with it.
std::string value_of(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind(key, 0) == 0 && colon != line.npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace

int usable_cores() noexcept {
  cpu_set_t bound, all, granted;
  CPU_ZERO(&all);
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &all);
  if (::sched_getaffinity(0, sizeof bound, &bound) != 0)
    return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
  // Includes cores that a launcher has excluded, because this describes the machine.
  granted = bound;
  if (::sched_setaffinity(0, sizeof all, &all) == 0) {
    ::sched_getaffinity(0, sizeof granted, &granted);
    ::sched_setaffinity(0, sizeof bound, &bound);
  }
  return std::max(CPU_COUNT(&granted), 1);
}

std::string machine_text() {
  utsname kernel{};
  ::uname(&kernel);
  std::string processor = value_of("/proc/cpuinfo", "model name");
  if (processor.empty()) processor = kernel.machine;
  return processor + ", " + kernel.sysname + " " + kernel.release;
}

double host_mark() {
  std::ifstream from("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(from, id);
  return static_cast<double>(std::hash<std::string>()(id) & ((std::uint64_t{1} << 48) - 1));
}

void pin_to_core(int rank) noexcept {
  cpu_set_t all, one;
  if (rank < 0 || ::sched_getaffinity(0, sizeof all, &all) != 0) return;
  int left = rank % std::max(CPU_COUNT(&all), 1);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || left-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

bool maps_memory_named(std::string_view name) {
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);)
    if (line.find(name) != line.npos) return true;
  return false;
}

bool has_descriptor_named(std::string_view name) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored))
    if (std::filesystem::read_symlink(entry.path(), ignored).string().find(name) != std::string::npos)
      return true;
  return false;
}

}  // namespace perf
