// SPDX-License-Identifier: Apache-2.0
// elastic_rendezvous: ranks that meet repeatedly, as some die and are restarted: at the store of rank 0, in
// epochs.
#pragma once

#include "bootstrap/environment.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <memory>
#include <tutti/store.hpp>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

// Completes on every rank with the same world when all job.world_size ranks have come to one epoch. That is
// `least` or a later one, and is in the world's info. An epoch ends without a world when a rank of a later
// epoch comes, or a rank that died in it comes again. The next epoch then begins, and all waiting ranks go
// along. `server` is this process's on rank 0 and null on the others. They return to it when rank 0 has died
// and serves anew.
//
// Errors are those of meet().
task<core::world_info> meet_in_epochs(boost::asio::any_io_executor executor, job who,
                                      core::endpoint_record mine, std::int64_t least,
                                      std::shared_ptr<tcp_store_server> server, core::time_point deadline);

}  // namespace tutti::bootstrap
