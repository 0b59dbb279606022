// SPDX-License-Identifier: Apache-2.0
#include "core/peer_records.hpp"

#include <tutti/error.hpp>

namespace tutti::core {

task<> peer_records::obtain(int rank, time_point deadline) const {
  const std::shared_ptr<record_source> from = source_;
  while (find(rank) == nullptr) {
    if (from == nullptr) throw error(errc::peer_failed, "its address is not known");
    std::vector<endpoint_record> got = co_await from->ask(rank, deadline);
    for (endpoint_record& each : got) learn(std::move(each));
  }
}

}  // namespace tutti::core
