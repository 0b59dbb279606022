// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/elastic_rendezvous.hpp"

#include "bootstrap/rendezvous.hpp"
#include "core/outside_scope.hpp"
#include "core/wakeup.hpp"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

// The number of the newest epoch. The keys of each are under "epoch/<number>".
constexpr const char* newest_key = "epoch";
std::string prefix_of(std::int64_t epoch) { return fmt::format("epoch/{}", epoch); }

// For the question whether a store is still there.
constexpr auto answer_limit = std::chrono::seconds(5);

std::int64_t number_in(const std::string& text) {
  return word_reader(text, "an epoch").number<std::int64_t>();
}

// Returns the newest epoch, which becomes `least` if it was an earlier one.
task<std::int64_t> newest_epoch(store& through, std::int64_t least, core::time_point deadline) {
  std::string held;
  for (;;) {
    const store_exchange raised =
        co_await through.compare_exchange(newest_key, held, std::to_string(least), core::time_left(deadline));
    if (raised.exchanged) break;
    held = raised.value;
    const std::int64_t newest = number_in(held);
    if (newest >= least) co_return newest;
  }
  if (!held.empty()) {
    prefix_store earlier(through, prefix_of(number_in(held)));
    co_await supersede(earlier, deadline);
  }
  co_return least;
}

// A process whose rank has come before takes the place of one that has died.
task<bool> enter_once(store& epoch, int rank, core::time_point deadline) {
  const bool taken = co_await has_come(epoch, rank, deadline);
  co_return !taken;
}

task<bool> answers(store& through) {
  bool there = true;
  try {
    co_await through.count(newest_key, answer_limit);
  } catch (const error&) {
    there = false;
  }
  co_return there;
}

}  // namespace

task<core::world_info> meet_at(store& through, job who, core::endpoint_record mine, std::int64_t* least,
                               epoch_entry enter, core::time_point deadline) {
  const detail::scoped_promise* const self = co_await detail::own_promise{};
  for (;;) {
    const std::int64_t epoch = co_await newest_epoch(through, *least, deadline);
    prefix_store keys(through, prefix_of(epoch));
    *least = epoch;
    const bool over = co_await is_over(keys, deadline);
    if (!over) {
      const bool entered = co_await enter(keys, deadline);
      if (entered) {
        std::optional<core::world_info> info;
        std::exception_ptr failure;
        try {
          info = co_await try_meet(keys, who, mine, deadline);
        } catch (...) {
          failure = std::current_exception();
        }
        // The others meet in the next epoch, where this rank has made no claim.
        if (failure && self->is_stopped())
          co_await core::outside_scope(supersede(keys, core::deadline_after(answer_limit)));
        if (failure) std::rethrow_exception(failure);
        if (info) {
          info->epoch = static_cast<std::uint32_t>(epoch);
          co_return std::move(*info);
        }
      } else {
        co_await supersede(keys, deadline);
      }
    }
    *least = epoch + 1;
  }
}

task<core::world_info> meet_in_epochs(boost::asio::any_io_executor executor, job who,
                                      core::endpoint_record mine, std::int64_t least,
                                      std::shared_ptr<tcp_store_server> server, core::time_point deadline) {
  const epoch_entry enter = [rank = who.rank](store& epoch, core::time_point until) {
    return enter_once(epoch, rank, until);
  };
  for (;;) {
    std::unique_ptr<store> through;
    if (server != nullptr) {
      through = server->local();
    } else {
      through = co_await store_of_rank_0(executor, who, deadline);
    }
    std::optional<error> trouble;
    try {
      core::world_info info = co_await meet_at(*through, who, mine, &least, enter, deadline);
      co_return std::move(info);
    } catch (const error& e) {
      trouble = e;
    }
    const bool may_come_back = server == nullptr && core::clock::now() < deadline;
    if (!may_come_back) throw *trouble;
    const bool there = co_await answers(*through);
    if (there) throw *trouble;
  }
}

}  // namespace tutti::bootstrap
