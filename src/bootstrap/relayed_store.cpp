// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/relayed_store.hpp"

#include "base/throw_error.hpp"
#include "core/wakeup.hpp"

#include <algorithm>
#include <tutti/as_result.hpp>
#include <tutti/detail/deadline.hpp>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::bootstrap {
namespace {

constexpr const char* reopening = "";  // as a key that is asked for

// Whether it may be carried out twice.
bool is_read(const store_request& what) {
  return what.waits() || what.operation == store_operation::count ||
         (what.operation == store_operation::compare_exchange && what.expected == what.value);
}

}  // namespace

// While it lives, its owner asks for this key.
class relayed_store::turn {
 public:
  turn(relayed_store& of, std::string key) : of_(of), key_(std::move(key)) { of.asked_.insert(key_); }
  ~turn() {
    of_.asked_.erase(key_);
    of_.answered_.notify(key_);
  }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;

 private:
  relayed_store& of_;
  const std::string key_;
};

// Waits for the one that asks for the key; false: the deadline has passed.
task<bool> relayed_store::others(const std::string& key, core::time_point deadline) {
  const store_contents::watch asking(answered_, key, executor_);
  co_return co_await asking.changed().wait(deadline, "waiting for a value");
}

task<store_answer> relayed_store::ask(store_request what) {
  const core::time_point deadline = detail::after(time_.now(), what.timeout);
  for (;;) {
    const std::shared_ptr<store> at = of_;
    result<store_answer> found = co_await as_result(at->perform(what));
    if (found) co_return std::move(found.value);
    if (found.error != errc::peer_failed || !open_ || !is_read(what)) throw base::error_of(found);
    while (of_ == at) {
      if (asked_.contains(reopening)) {
        const bool in_time = co_await others(reopening, deadline);
        if (!in_time) throw base::error_of(found);
        continue;
      }
      const turn mine(*this, reopening);
      result<std::unique_ptr<store>> opened =
          co_await as_result(open_(core::time_left(deadline, time_.now())));
      if (!opened) throw base::error_of(found);
      of_ = std::move(opened.value);
    }
    what.timeout = core::time_left(deadline, time_.now());
  }
}

task<store_answer> relayed_store::carry_out(store_request what) {
  const std::chrono::milliseconds timeout = what.timeout;
  const core::time_point deadline = detail::after(time_.now(), timeout);
  const auto left = [this, deadline] { return core::time_left(deadline, time_.now()); };
  const bool keeps = is_kept_(what);
  while (keeps) {
    if (const auto known = kept_.find(what.key); known != kept_.end()) {
      store_answer answer;
      answer.text = known->second;
      co_return std::move(answer);
    }
    if (asked_.contains(what.key)) {
      const bool in_time = co_await others(what.key, deadline);
      if (!in_time) throw_missing_key(what, name());
      continue;
    }
    const turn mine(*this, what.key);
    what.timeout = what.waits() ? std::min(longest_, left()) : left();
    result<store_answer> found = co_await as_result(ask(what));
    if (found) {
      const std::string& text = found.value.text;
      if (kept_bytes_ + text.size() > most_kept) {
        kept_.clear();
        kept_bytes_ = 0;
      }
      if (!text.empty() && kept_.emplace(what.key, text).second) kept_bytes_ += text.size();
      co_return std::move(found.value);
    }
    if (found.error != errc::timed_out || !what.waits()) throw base::error_of(found);
    if (left().count() == 0) {
      what.timeout = timeout;
      throw_missing_key(what, name());
    }
  }
  co_return co_await ask(std::move(what));
}

}  // namespace tutti::bootstrap
