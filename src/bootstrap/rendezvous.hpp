// SPDX-License-Identifier: Apache-2.0
// How ranks become a world: each publishes its endpoint record in a store, the last one to come publishes the
// table of all.
#pragma once

#include "bootstrap/environment.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

// Who this process is, without addresses. TUTTI_HOST_ID pretends another host: ranks whose values differ do
// not share memory.
core::endpoint_record local_endpoint_record(int rank);

// Completes when the name of rank 0's host resolves, at once without one. Transports look it up where they
// listen. Errors are those of resolve_host.
task<> await_master_name(boost::asio::any_io_executor executor, job who, core::time_point deadline);

// The store of rank 0, for another rank. Errors as those of tcp_store::connect.
task<std::unique_ptr<store>> store_of_rank_0(boost::asio::any_io_executor executor, job who,
                                             core::time_point deadline);

// Completes with the secret of the job that meets there: `own`, or what the ranks agree on when it is empty.
// Who may read the store knows it then.
task<std::string> agree_on_secret(store& through, std::string own, core::time_point deadline);

// Completes on every rank with the same world when all job.world_size ranks have come. `through` outlives the
// task.
//
// Errors, on every rank that waits, at the deadline or shortly after: join_failed, naming the ranks that have
// not come; a rank that contradicts (another world size) ends the attempt for all at once; a second process
// with one rank fails, naming both, and disturbs nobody. A store belongs to one attempt: after an error,
// start anew with another. Cost: five requests of each rank, seven of the last, whatever the number of ranks.
//
// Whoever serves the store goes on serving until its clients have left (tcp_store_server::drain), in success
// and in failure: others may still be reading the table, or why there is none.
task<core::world_info> meet(store& through, job who, core::endpoint_record mine, core::time_point deadline);

// The same where a store may see one attempt after another, each with keys of its own (prefix_store): nullopt
// when this one has been superseded.
task<std::optional<core::world_info>> try_meet(store& through, job who, core::endpoint_record mine,
                                               core::time_point deadline);
// Whether an attempt has ended, in a world, a failure or as superseded.
task<bool> is_over(store& through, core::time_point deadline);
// Whether a process has come to an attempt with this rank.
task<bool> has_come(store& through, int rank, core::time_point deadline);
// Ends an attempt that has not ended: those that wait in it fail for this reason.
task<> call_off(store& through, std::string why);
// Ends an attempt that has not ended: those that wait in it learn that the next one has begun.
task<> supersede(store& through, core::time_point deadline);

}  // namespace tutti::bootstrap
