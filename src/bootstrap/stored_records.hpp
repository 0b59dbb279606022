// SPDX-License-Identifier: Apache-2.0
// stored_records: the endpoint records of a large world in a store, host by host, where its ranks ask for them when they
// first connect. Keys of a world have its id, so that they are written once.
#pragma once

#include "bootstrap/peer_table.hpp"
#include "bootstrap/store_contents.hpp"
#include "core/peer_records.hpp"
#include "core/platform.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::bootstrap {

inline constexpr std::string_view records_keys = "records/";

// Writes the records of all ranks, in order, for a world with this table. Cost: a request for each host.
task<> publish_records(store& at, const peer_table& table, std::vector<core::endpoint_record> all,
                       std::chrono::milliseconds timeout);
// Removes them. Ranks that ask later get an error.
task<> remove_records(store& at, const peer_table& table, std::chrono::milliseconds timeout);

// Reads the records of a rank's host. Errors: errc::peer_failed: the store has none for this world, or those of another
// world; those of the store.
task<std::vector<core::endpoint_record>> read_records(store& from, std::uint64_t world, int host,
                                                      std::chrono::milliseconds timeout);

class stored_records final : public core::record_source {
 public:
  // Opens the store again that has the records, with the keys that publish_records() has written.
  using opener = std::function<task<std::unique_ptr<store>>(core::time_point deadline)>;
  // A null `open`: it stays as it is, `at`. The keys are behind `prefix`, if there is one (prefix_store).
  stored_records(boost::asio::any_io_executor executor, std::uint64_t world, core::host_map hosts,
                 std::string prefix, opener open, std::unique_ptr<store> at = nullptr);

  task<std::vector<core::endpoint_record>> ask(int rank, core::time_point deadline) override;
  bool close() noexcept override;

 private:
  // One of the calls that want the same thing does it; the others wait, and look again.
  class turn;
  task<> wait_for(int what, core::time_point deadline);
  task<> open(core::time_point deadline);

  const boost::asio::any_io_executor executor_;
  const std::uint64_t world_;
  const core::host_map hosts_;
  const std::string prefix_;
  opener open_;
  std::shared_ptr<store> store_;  // null: none is open
  std::set<int> busy_;            // hosts that are asked for, and -1 while the store is opened
  int calls_ = 0;
  store_contents changed_;  // has no keys: the calls wait for the only one
};

}  // namespace tutti::bootstrap
