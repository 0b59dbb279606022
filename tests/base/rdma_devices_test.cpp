// SPDX-License-Identifier: Apache-2.0
#include "base/rdma_devices.hpp"

#include "support/scratch_directory.hpp"

#include <doctest/doctest.h>

using tutti::base::any_active;
using tutti::base::rdma_ports;

TEST_CASE("RDMA ports are those that the kernel lists, with their state") {
  const tutti::test::scratch_directory root;
  CHECK(rdma_ports(root.path()).empty());
  CHECK(rdma_ports(root.path() / "missing").empty());
  CHECK_FALSE(any_active({}));
  const auto add = [&](const std::string& device, const std::string& port, const std::string& state,
                       const std::string& layer) {
    const std::filesystem::path at = std::filesystem::path(device) / "ports" / port;
    std::filesystem::create_directories(root.path() / at);
    root.write(at / "state", state + "\n");
    root.write(at / "link_layer", layer + "\n");
    root.write(at / "rate", "200 Gb/sec (4X HDR)\n");
  };
  add("mlx5_1", "1", "1: DOWN", "Ethernet");
  CHECK_FALSE(any_active(rdma_ports(root.path())));
  add("mlx5_0", "2", "4: ACTIVE", "InfiniBand");
  add("mlx5_0", "1", "2: INIT", "InfiniBand");
  const auto ports = rdma_ports(root.path());
  REQUIRE(ports.size() == 3);
  CHECK(ports[0].name == "mlx5_0:1");
  CHECK_FALSE(ports[0].active);
  CHECK(ports[1].name == "mlx5_0:2");
  CHECK(ports[1].active);
  CHECK(ports[1].layer == "InfiniBand");
  CHECK(ports[1].rate == "200 Gb/sec (4X HDR)");
  CHECK(ports[2].name == "mlx5_1:1");
  CHECK(any_active(ports));
}
