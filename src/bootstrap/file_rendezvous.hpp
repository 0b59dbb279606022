// SPDX-License-Identifier: Apache-2.0
// file_rendezvous: how ranks without an address of rank 0, but with a common file system, become a world.
#pragma once

#include "bootstrap/environment.hpp"
#include "core/platform.hpp"
#include "core/world_info.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <string>
#include <tutti/task.hpp>

namespace tutti::bootstrap {

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

// "tutti" in XDG_RUNTIME_DIR if there is one, else /tmp/tutti-<uid>: the same for all processes of a user.
std::string private_directory();
// Makes it if missing. Throws invalid_argument unless it belongs to this user alone: others could pose as
// ranks.
void make_private_directory(const std::string& path);
// Removes it unless it has contents.
void leave_private_directory(const std::string& path) noexcept;

}  // namespace tutti::bootstrap
