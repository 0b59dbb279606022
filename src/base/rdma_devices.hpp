// SPDX-License-Identifier: Apache-2.0
// The network devices of this host that can do RDMA, as the kernel lists them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tutti::base {

struct rdma_port {
  std::string name;   // "mlx5_0:1"
  std::string layer;  // "InfiniBand" or "Ethernet" (RoCE, EFA)
  std::string rate;   // "200 Gb/sec (4X HDR)"
  bool active = false;
};

// All ports, by name. Empty: there is no such device, or its driver is not loaded.
std::vector<rdma_port> rdma_ports(const std::filesystem::path& root = "/sys/class/infiniband");
bool any_active(const std::vector<rdma_port>& ports) noexcept;

}  // namespace tutti::base
