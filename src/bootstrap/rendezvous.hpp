// SPDX-License-Identifier: Apache-2.0
// rendezvous: how ranks become a world. Each publishes its endpoint record in a store, and the last one
// publishes the table of all. Ranks that meet repeatedly in one store do so in numbered epochs: those of rank
// 0's store as some die and are restarted, those of a file as one run follows another.
#pragma once

#include "bootstrap/environment.hpp"
#include "bootstrap/peer_table.hpp"
#include "bootstrap/stored_records.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tutti/store.hpp>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

// The world of this table, of `size` ranks, as this process, who.rank of it, enters it: with the settings of its job.
core::world_info world_of(const job& who, int size, peer_table table);
// Where this rank of a large world asks for records: it opens a store when it first needs one, or has it already. The
// records are behind `prefix` there. Nothing happens for a world whose records it has.
void ask_later(core::world_info& info, boost::asio::any_io_executor executor, stored_records::opener open,
               std::string prefix, std::unique_ptr<store> at = nullptr);
// Of a job whose store rank 0 serves.
stored_records::opener opener_of_rank_0(boost::asio::any_io_executor executor, job who,
                                        std::weak_ptr<tcp_store_server> server);

// Connects to the store of rank 0, which is `server` itself in the process that has it. Errors as those of
// tcp_store::connect.
task<std::unique_ptr<store>> store_of_rank_0(boost::asio::any_io_executor executor, job who,
                                             core::time_point deadline,
                                             std::shared_ptr<tcp_store_server> server = nullptr);

// Returns the secret of the job that meets there: `own`, or one that the ranks agree on if that is empty.
// Whoever may read the store then knows it.
task<std::string> agree_on_secret(store& through, std::string own, core::time_point deadline);

// Ends the meeting there unless it has ended: its ranks fail with errc::join_failed and this text.
task<> end_meeting(store& through, std::string why);
// Why it was ended; empty if it was not, or has succeeded.
task<std::string> why_ended(store& through);

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
// In a world of more than job.records_at_once ranks the last one makes a request for each host, and each rank one more:
// it knows the records of its host. The caller then uses ask_later().
//
// The process that serves the store goes on serving until its clients have left (tcp_store_server::drain),
// also after a failure. Others may still be reading the table, or why there is none.
task<core::world_info> meet(store& through, job who, core::endpoint_record mine, core::time_point deadline);

// Ends an attempt that has not ended: its waiting ranks fail for this reason.
task<> call_off(store& through, std::string why);

// How a rank enters an epoch: records this process in it. Returns false if a process that entered it earlier
// has died: the epoch cannot become a world any more.
using epoch_entry = std::function<task<bool>(store& epoch, core::time_point deadline)>;

// Where the keys of an epoch are.
std::string prefix_of_epoch(std::int64_t epoch);

// Whether no process with this rank has entered the epoch before.
task<bool> is_first(store& epoch, int rank, core::time_point deadline);

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

// ---- at a file: ranks without an address of rank 0, but with a common file system ----

// meet_at() in a file_store at job.rendezvous_file. Ranks come in any order. An earlier run's leftovers do no
// harm:
//   - a file without users starts empty;
//   - ranks with a job id meet only ranks of the same job;
//   - a rank that comes after an epoch has ended, or finds that a rank of it has died, starts the next. Ranks
//     that wait in the old one go over, until the deadline.
// So only a live, still waiting rank of an earlier run without a job id can be taken for one of this run. The
// other rank with its number then reports that. Without a secret, the ranks agree on one through the file,
// which only this user can read. Errors are those of meet() and file_store::open().
task<core::world_info> meet_at_file(boost::asio::any_io_executor executor, job who,
                                    core::endpoint_record mine, core::time_point deadline);

// ---- in etcd ----

// meet_at() in an etcd_store at job.etcd. Ranks come in any order. What was said of files of earlier runs holds for
// keys. The last rank to enter an epoch, and one that finds its number taken, asks all others to answer. If one does not
// within 5 s, the next epoch begins. Without a secret the ranks agree on one, and listen on loopback only. Errors are
// those of meet() and etcd_store::connect().
task<core::world_info> meet_in_etcd(boost::asio::any_io_executor executor, job who,
                                    core::endpoint_record mine, core::time_point deadline);

// "tutti" in XDG_RUNTIME_DIR if there is one, else /tmp/tutti-<uid>: the same for all processes of a user.
std::string private_directory();
// Makes it if missing. Throws invalid_argument unless it belongs to this user alone: others could pose as
// ranks.
void make_private_directory(const std::string& path);
// Removes it unless it has contents.
void leave_private_directory(const std::string& path) noexcept;

}  // namespace tutti::bootstrap
