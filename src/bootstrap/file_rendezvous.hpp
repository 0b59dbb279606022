// SPDX-License-Identifier: Apache-2.0
// How ranks become a world that have no address of rank 0, but a file system in common.
#pragma once

#include "bootstrap/environment.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

// meet() through a file_store at job.rendezvous_file. Ranks come in any order; whatever an earlier run has
// left:
//   a file in which nobody is starts empty;
//   ranks with a job id meet only those of the same job;
//   attempts are numbered. Who comes when one has ended in a world or a failure begins the next, and so does
//   who finds that a rank of it has died: those that wait in it go over to the next, until the deadline.
// So only a rank of an earlier run that still lives and still waits, without a job id, is taken for one of
// this run; the other rank of its number then says so. Without a secret, the ranks agree on one through the
// file, which nobody but this user can read. Errors are those of meet(), and of file_store::open().
task<core::world_info> meet_at_file(boost::asio::any_io_executor executor, job who,
                                    core::endpoint_record mine, core::time_point deadline);

}  // namespace tutti::bootstrap
