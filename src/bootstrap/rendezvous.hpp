// SPDX-License-Identifier: Apache-2.0
// rendezvous: how ranks become a world. Each publishes its endpoint record in a store, and the last one
// publishes the table of all.
#pragma once

#include "bootstrap/environment.hpp"
#include "bootstrap/peer_table.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

// The world of these ranks as this process, who.rank of it, enters it: with the settings of its job.
core::world_info world_of(const job& who, peer_table table);

// Completes when the name of rank 0's host resolves, or at once without a name. Transports look it up when
// they listen. Errors are those of resolve_host.
task<> await_master_name(boost::asio::any_io_executor executor, job who, core::time_point deadline);

// Connects another rank to the store of rank 0. Errors as those of tcp_store::connect.
task<std::unique_ptr<store>> store_of_rank_0(boost::asio::any_io_executor executor, job who,
                                             core::time_point deadline);

// Returns the secret of the job that meets there: `own`, or one that the ranks agree on if that is empty.
// Whoever may read the store then knows it.
task<std::string> agree_on_secret(store& through, std::string own, core::time_point deadline);

// Gives a key its value unless it has one, and returns the value that it then has. An empty value only reads.
task<std::string> propose(store& at, std::string key, std::string value, std::chrono::milliseconds timeout);

// Completes on every rank with the same world when all job.world_size ranks have come. `through` outlives the
// task.
//
// Errors come on every waiting rank, at the deadline or shortly after. join_failed names the missing ranks. A
// rank that contradicts (another world size) ends the attempt for all at once. A second process with one rank
// fails, naming both, and disturbs no other. A store serves one attempt: after an error, start anew with
// another. Cost: five requests from each rank, seven from the last, for any number of ranks.
//
// If the scope of the awaiting coroutine is stopped, the error is its reason, and the attempt ends for all: the
// others get join_failed, naming this rank. That takes as long as a request to the store.
//
// The process that serves the store goes on serving until its clients have left (tcp_store_server::drain),
// also after a failure. Others may still be reading the table, or why there is none.
task<core::world_info> meet(store& through, job who, core::endpoint_record mine, core::time_point deadline);

// The same for a store that sees one attempt after another, each with keys of its own (prefix_store). Returns
// nullopt if this attempt has been superseded.
task<std::optional<core::world_info>> try_meet(store& through, job who, core::endpoint_record mine,
                                               core::time_point deadline);
// Whether an attempt has ended: in a world, a failure or as superseded.
task<bool> is_over(store& through, core::time_point deadline);
// Whether a process has come to an attempt with this rank.
task<bool> has_come(store& through, int rank, core::time_point deadline);
// Ends an attempt that has not ended: its waiting ranks fail for this reason.
task<> call_off(store& through, std::string why);
// Ends an attempt that has not ended: its waiting ranks learn that the next one has begun.
task<> supersede(store& through, core::time_point deadline);

}  // namespace tutti::bootstrap
