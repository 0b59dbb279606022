// SPDX-License-Identifier: Apache-2.0
// The rendezvous at a file.
#include "base/env.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <tutti/as_result.hpp>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

// Does not follow a last symbolic link, which another user may have made.
bool is_mine_alone(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

// Key of an epoch: the users of the file that have entered it, as "3 4 17 ".
constexpr const char* users_key = "users";

std::string directory_of(const job& who) {
  return std::filesystem::path(who.rendezvous_file).parent_path().string();
}

std::string prefix_of(const job& who) { return who.job_id.empty() ? "-" : who.job_id; }

// Removes the directory of a private rendezvous after the file.
struct leave_directory {
  const job& who;
  ~leave_directory() {
    if (who.private_rendezvous) leave_private_directory(directory_of(who));
  }
};

task<std::unique_ptr<file_store>> open_file(boost::asio::any_io_executor executor, const job& who,
                                            core::time_point deadline) {
  for (;;) {
    if (who.private_rendezvous) make_private_directory(directory_of(who));
    result<std::unique_ptr<file_store>> opened =
        co_await as_result(file_store::open(executor, who.rendezvous_file, core::time_left(deadline)));
    if (opened) co_return std::move(opened.value);
    // The directory goes with the last rendezvous in it, which may just have ended.
    const bool gone = who.private_rendezvous && !std::filesystem::exists(directory_of(who));
    if (!gone || core::clock::now() >= deadline) throw base::error_of(opened);
  }
}

// Users of a file enter an epoch as long as all who did so before are alive.
task<bool> enter_beside_live_users(file_store& file, store& epoch, core::time_point deadline) {
  const std::string users = co_await propose(epoch, users_key, "", core::time_left(deadline));
  std::istringstream listed(users);
  for (std::uint64_t user = 0; listed >> user;)
    if (!file.is_alive(user)) co_return false;
  if (!listed.eof()) base::throw_error(errc::protocol, "{} holds no list of its users", epoch.name());
  co_await epoch.append(users_key, fmt::format("{} ", file.user()), core::time_left(deadline));
  co_return true;
}

}  // namespace

std::string private_directory() {
  if (const auto runtime = base::env_string("XDG_RUNTIME_DIR"); runtime && is_mine_alone(*runtime))
    return *runtime + "/tutti";
  return fmt::format("/tmp/tutti-{}", ::geteuid());
}

void make_private_directory(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    base::throw_error(errc::system,
                      "cannot make the directory {}, in which the ranks of this host meet: {}; make it "
                      "possible, or set "
                      "MASTER_ADDR=127.0.0.1 and MASTER_PORT to a free port, the same on all ranks",
                      path, base::errno_text(errno));
  if (is_mine_alone(path) || errno == ENOENT) return;  // gone again: who opens a file in it will see
  base::throw_error(
      errc::invalid_argument,
      "{}, in which the ranks of this host meet, is not a directory of this user alone (uid {}, mode "
      "0700): remove it, or set XDG_RUNTIME_DIR to a directory that is",
      path, ::geteuid());
}

void leave_private_directory(const std::string& path) noexcept { ::rmdir(path.c_str()); }

task<core::world_info> meet_at_file(boost::asio::any_io_executor executor, job who,
                                    core::endpoint_record mine, core::time_point deadline) {
  const leave_directory last{who};
  std::unique_ptr<file_store> file = co_await open_file(executor, who, deadline);
  try {
    prefix_store of_job(*file, prefix_of(who));
    who.secret = co_await agree_on_secret(of_job, who.secret, deadline);
    const epoch_entry enter = [&file](store& of, core::time_point until) {
      return enter_beside_live_users(*file, of, until);
    };
    std::int64_t epoch = 0;
    core::world_info info = co_await meet_at(of_job, who, std::move(mine), &epoch, enter, deadline);
    // The file lives as long as a rank that may ask has it open.
    ask_later(info, executor, nullptr, prefix_of(who) + '/' + prefix_of_epoch(epoch), std::move(file));
    co_return std::move(info);
  } catch (const error& e) {
    if (e.code() != errc::join_failed) throw;
    base::throw_error(errc::join_failed, "{} (the ranks meet at the file {})", e.what(), who.rendezvous_file);
  }
}

}  // namespace tutti::bootstrap
