// SPDX-License-Identifier: Apache-2.0
// elastic_rendezvous: ranks that meet repeatedly in one store, in numbered epochs: those of rank 0's store as
// some die and are restarted, those of a file as one run follows another.
#pragma once

#include "bootstrap/environment.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <tutti/store.hpp>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

// How a rank enters an epoch: records this process in it. Returns false if a process that entered it earlier
// has died: the epoch cannot become a world any more.
using epoch_entry = std::function<task<bool>(store& epoch, core::time_point deadline)>;

// Completes on every rank with the same world when all job.world_size ranks have entered one epoch of
// `through`. That is *least or a later one, and is in the world's info; *least is the last one tried. An
// epoch ends without a world when a rank of a later epoch comes, or `enter` returns false. The next epoch then
// begins, and all waiting ranks go along. Errors are those of meet().
task<core::world_info> meet_at(store& through, job who, core::endpoint_record mine, std::int64_t* least,
                               epoch_entry enter, core::time_point deadline);

// meet_at() in the store of rank 0, from epoch `least` on. A rank that died in an epoch and comes again ends
// it. `server` is this process's on rank 0 and null on the others. They return to it when rank 0 has died
// and serves anew.
task<core::world_info> meet_in_epochs(boost::asio::any_io_executor executor, job who,
                                      core::endpoint_record mine, std::int64_t least,
                                      std::shared_ptr<tcp_store_server> server, core::time_point deadline);

}  // namespace tutti::bootstrap
