// SPDX-License-Identifier: Apache-2.0
#include "common/machine.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

namespace perf {
namespace {

// The rest of the first line of `file` that begins with `key` and a colon.
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
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(CPU_COUNT(&cores), 1);
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
}

std::string machine_text() {
  utsname kernel{};
  ::uname(&kernel);
  std::string processor = value_of("/proc/cpuinfo", "model name");
  if (processor.empty()) processor = kernel.machine;
  return processor + ", " + kernel.sysname + " " + kernel.release;
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
