// SPDX-License-Identifier: Apache-2.0
#include "launch/coordination.hpp"

namespace tutti::launch {

std::unique_ptr<coordination> coordination::make(place node) {
  if (!node.o.store.empty()) return make_elected(std::move(node));
  return node.o.node_rank == 0 ? make_head(std::move(node), std::nullopt) : make_member(std::move(node));
}

}  // namespace tutti::launch
