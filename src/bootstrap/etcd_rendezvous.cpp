// SPDX-License-Identifier: Apache-2.0
// The rendezvous in etcd. Keys of a rank that has died stay there for a while, so a rank shows that it lives by
// answering a roll call:
//   call/N         a rank asks all others, for the Nth time in this job
//   here/N/USER    a user's answer
#include "base/hmac.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/rendezvous.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <sstream>
#include <string>
#include <tutti/as_result.hpp>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>
#include <vector>

namespace tutti::bootstrap {
namespace {

// Key of an epoch: the users that have entered it, as "5f0a 77c1 ".
constexpr const char* entered_key = "users";
constexpr auto time_to_show = std::chrono::seconds(5);

std::string call_key(int number) { return fmt::format("call/{}", number); }
std::string here_key(int number, const std::string& user) { return fmt::format("here/{}/{}", number, user); }

// Answers all roll calls, those of an earlier run as well.
task<> answer_calls(store& of_job, std::string user, std::chrono::milliseconds timeout) {
  for (int number = 1;; ++number) {
    const auto called = co_await as_result(of_job.wait(call_key(number), timeout));
    if (!called) co_return;  // at the deadline of joining, or with the store
    const auto said = co_await as_result(of_job.set(here_key(number, user), "", timeout));
    if (!said) co_return;
  }
}

// Asks these users whether they live, and returns whether all do.
task<bool> all_answer(store& of_job, std::vector<std::string> users, core::time_point deadline) {
  int number = 1;
  for (;; ++number) {
    const store_exchange claimed =
        co_await of_job.compare_exchange(call_key(number), "", "called", core::time_left(deadline));
    if (claimed.exchanged) break;
  }
  for (const std::string& user : users) {
    // Each has the time anew: thousands take longer than one.
    const core::time_point until = std::min(deadline, core::deadline_after(time_to_show));
    const auto here = co_await as_result(of_job.wait(here_key(number, user), core::time_left(until)));
    if (here) continue;
    if (here.error == errc::timed_out && core::clock::now() < deadline) co_return false;
    throw base::error_of(here);
  }
  co_return true;
}

// A rank enters an epoch unless one of those before it has died. The last one knows, since all others have entered;
// and one whose number is taken, by a process that has died or one that lives.
task<bool> enter_beside_living(store& of_job, store& epoch, const job& who, const std::string& user,
                               core::time_point deadline) {
  const bool first = co_await is_first(epoch, who.rank, deadline);
  if (first) co_await epoch.append(entered_key, user + " ", core::time_left(deadline));
  const std::string listed = co_await propose(epoch, entered_key, "", core::time_left(deadline));
  std::istringstream names(listed);
  std::vector<std::string> before;
  for (std::string name; names >> name && name != user;) before.push_back(std::move(name));
  const bool last = before.size() + 1 >= static_cast<std::size_t>(who.world_size);
  if (first && !last) co_return true;
  co_return co_await all_answer(of_job, std::move(before), deadline);
}

task<std::unique_ptr<store>> open_again(boost::asio::any_io_executor executor, job who,
                                        core::time_point deadline) {
  std::unique_ptr<store> opened =
      co_await etcd_store::connect(executor, who.etcd, core::time_left(deadline), who.tls_of_etcd);
  co_return std::move(opened);
}

}  // namespace

task<core::world_info> meet_in_etcd(boost::asio::any_io_executor executor, job who,
                                    core::endpoint_record mine, core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  const std::string user = base::random_hex(8);
  try {
    std::unique_ptr<etcd_store> all =
        co_await etcd_store::connect(executor, who.etcd, core::time_left(deadline), who.tls_of_etcd);
    const std::string of_this_job = who.job_id.empty() ? "-" : who.job_id;
    prefix_store of_job(*all, of_this_job);
    core::background_tasks answering;
    answering.start(answer_calls(of_job, user, core::time_left(deadline)));
    who.secret = co_await agree_on_secret(of_job, who.secret, deadline);
    const epoch_entry enter = [&of_job, &who, &user](store& epoch, core::time_point until) {
      return enter_beside_living(of_job, epoch, who, user, until);
    };
    std::int64_t epoch = 0;
    core::world_info info = co_await meet_at(of_job, who, std::move(mine), &epoch, enter, deadline);
    answering.clear();
    // The keys live as long as a rank that may ask is there.
    ask_later(
        info, executor, [executor, who](core::time_point until) { return open_again(executor, who, until); },
        of_this_job + '/' + prefix_of_epoch(epoch), std::move(all));
    co_return std::move(info);
  } catch (const error& e) {
    if (self->is_stopped()) throw;
    if (e.code() == errc::join_failed)
      base::throw_error(errc::join_failed, "{} (the ranks meet at {})", e.what(), who.etcd);
    if (e.code() == errc::timed_out || e.code() == errc::peer_failed)
      base::throw_error(errc::join_failed, "rank {} cannot join: {}", who.rank, e.what());
    throw;
  }
}

}  // namespace tutti::bootstrap
