// SPDX-License-Identifier: Apache-2.0
#include "base/rdma_devices.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace tutti::base {
namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& file) {
  std::ifstream from(file);
  std::string line;
  std::getline(from, line);
  return line;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed); !failed && at != fs::directory_iterator();
       at.increment(failed))
    all.push_back(at->path());
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::vector<rdma_port> rdma_ports(const fs::path& root) {
  std::vector<rdma_port> all;
  for (const fs::path& device : entries_of(root))
    for (const fs::path& port : entries_of(device / "ports")) {
      rdma_port found;
      found.name = device.filename().string() + ":" + port.filename().string();
      found.layer = line_of(port / "link_layer");
      found.rate = line_of(port / "rate");
      found.active = line_of(port / "state").ends_with("ACTIVE");  // "4: ACTIVE"
      all.push_back(std::move(found));
    }
  return all;
}

bool any_active(const std::vector<rdma_port>& ports) noexcept {
  return std::ranges::any_of(ports, &rdma_port::active);
}

}  // namespace tutti::base
