// SPDX-License-Identifier: Apache-2.0
// A memory_store that counts requests, and fails them when told.
#pragma once

#include "core/wakeup.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <string>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace tutti::test {

class watched_store final : public store {
 public:
  struct watch {
    int requests = 0;
    bool broken = false;
    bool silent = false;
  };
  watched_store(boost::asio::any_io_executor executor, const memory_store& of, watch& by)
      : memory_(executor, of), by_(by), executor_(executor) {}
  std::string name() const override { return "store"; }

 private:
  task<store_answer> carry_out(store_request what) override {
    ++by_.requests;
    if (by_.broken) throw error(errc::peer_failed, "the store has gone");
    if (by_.silent) {
      core::wakeup never(executor_);
      co_await never.wait(core::deadline_after(what.timeout));
      throw error(errc::timed_out, "no answer");
    }
    co_return co_await memory_.perform(std::move(what));
  }

  memory_store memory_;
  watch& by_;
  const boost::asio::any_io_executor executor_;
};

}  // namespace tutti::test
