// SPDX-License-Identifier: Apache-2.0
// control_pool: the memory of frames that belong to no send and no receive, each kept until its link has
// released it.
#pragma once

#include "p2p/control_messages.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::p2p {

class control_pool {
 public:
  control_pool() = default;
  control_pool(const control_pool&) = delete;

  void post(transport::link& to, control_frame f) noexcept;
  std::size_t in_use() const noexcept { return all_.size() - free_.size(); }

 private:
  struct control : transport::outgoing {
    control_pool* owner = nullptr;
    std::vector<std::byte> payload_bytes;
  };
  std::vector<std::unique_ptr<control>> all_;
  std::vector<control*> free_;
};

}  // namespace tutti::p2p
