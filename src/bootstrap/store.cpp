// SPDX-License-Identifier: Apache-2.0
// The common part of all stores: operations as requests, checks of them, and the contents. And the stores that are
// little more: memory_store and prefix_store.
#include "base/fields.hpp"
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/store_contents.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

namespace tutti {

constexpr auto highest(errc) { return errc::system; }
constexpr auto highest(store_operation) { return store_operation::append; }

namespace bootstrap {
namespace {

constexpr const char* malformed_message =
    "a store message is damaged, or another version of tutti has sent it";

// In the order of store_operation.
constexpr std::string_view operation_names[] = {"",      "set",   "get",   "wait", "add", "compare_exchange",
                                                "erase", "count", "append"};

}  // namespace

std::string title_of(const store_request& what, const std::string& store) {
  const std::string key = what.key.empty() ? "" : fmt::format("('{}')", what.key);
  return fmt::format("{}{} on {}", operation_names[static_cast<std::size_t>(what.operation)], key, store);
}

void throw_missing_key(const store_request& what, const std::string& store) {
  if (what.timeout.count() == 0)
    base::throw_error(errc::timed_out, "{}: there is no such key", title_of(what, store));
  base::throw_error(
      errc::timed_out,
      "{}: nobody has set the key within {}; the rank that should has not come so far or has failed: look at "
      "its output, or allow more time (TUTTI_TIMEOUT, in seconds)",
      title_of(what, store), base::duration_text(what.timeout));
}

store_request decode_request(std::string_view message) {
  store_request request = base::from_bytes<store_request>(message, malformed_message);
  if (request.operation < store_operation::set) throw error(errc::protocol, malformed_message);
  return request;
}

store_answer decode_answer(std::string_view message) {
  return base::from_bytes<store_answer>(message, malformed_message);
}

store_contents::watch::watch(store_contents& contents, const std::string& key,
                             const boost::asio::any_io_executor& executor)
    : contents_(contents) {
  waiter entry{executor, std::make_shared<core::wakeup>(executor)};
  const std::lock_guard lock(contents_.mutex_);
  place_ = contents_.waiters_.emplace(key, std::move(entry));
}

store_contents::watch::~watch() {
  const std::lock_guard lock(contents_.mutex_);
  contents_.waiters_.erase(place_);
}

// Under the lock: a waiter that has left may take its executor's context with it.
void store_contents::tell(const std::string& key) {
  const auto [first, last] = waiters_.equal_range(key);
  for (auto at = first; at != last; ++at)
    boost::asio::post(at->second.executor, [changed = at->second.changed] { changed->notify(); });
}

store_answer store_contents::carry_out(const store_request& what, const std::string& store) {
  store_answer answer;
  const std::lock_guard lock(mutex_);
  const auto at = values_.find(what.key);
  const bool exists = at != values_.end();
  const std::string_view before = exists ? std::string_view(at->second) : std::string_view();
  const std::size_t key_bytes = entry_bytes + what.key.size();
  const std::size_t others = bytes_ - (exists ? key_bytes + before.size() : 0);
  const auto bytes_with = [&](std::size_t value_bytes) {
    if (others + key_bytes + value_bytes > most_bytes)
      base::throw_error(
          errc::resources,
          "{}: the store would hold more than {} bytes; send large data through a communicator, and "
          "erase keys that nobody needs any more",
          title_of(what, store), most_bytes);
    return others + key_bytes + value_bytes;
  };
  const auto put = [&](std::string value) {
    const std::size_t bytes = bytes_with(value.size());
    tell(what.key);
    values_.insert_or_assign(what.key, std::move(value));
    bytes_ = bytes;
  };
  const auto remove = [&] {
    if (!exists) return;
    values_.erase(at);
    bytes_ = others;
  };
  switch (what.operation) {
    case store_operation::set:
      put(what.value);
      break;
    case store_operation::add: {
      const std::optional<std::int64_t> number = exists ? base::to_number<std::int64_t>(before) : 0;
      if (!number || __builtin_add_overflow(*number, what.amount, &answer.amount))
        base::throw_error(errc::invalid_argument,
                          "{}: the key does not hold a decimal number, or the sum has more than 64 bits; use "
                          "a key of its own for each counter",
                          title_of(what, store));
      put(std::to_string(answer.amount));
      break;
    }
    case store_operation::compare_exchange:
      answer.flag = before == what.expected;
      answer.text = answer.flag ? what.value : before;
      if (answer.flag && what.value.empty())
        remove();
      else if (answer.flag)
        put(what.value);
      break;
    case store_operation::erase:
      answer.flag = exists;
      remove();
      break;
    case store_operation::count:
      for (auto each = values_.lower_bound(what.key);
           each != values_.end() && each->first.starts_with(what.key); ++each)
        ++answer.amount;
      break;
    case store_operation::append: {
      if (what.key.size() + before.size() + what.value.size() > tutti::store::largest_value)
        base::throw_error(errc::resources,
                          "{}: the value would have more than {} bytes; spread it over several keys",
                          title_of(what, store), tutti::store::largest_value);
      const std::size_t length = before.size() + what.value.size();
      if (exists) {
        const std::size_t bytes = bytes_with(length);
        tell(what.key);
        at->second += what.value;
        bytes_ = bytes;
      } else {
        put(what.value);
      }
      answer.amount = static_cast<std::int64_t>(length);
      break;
    }
    case store_operation::get:
    case store_operation::wait:
      break;  // the stores wait themselves
  }
  return answer;
}

std::optional<std::string> store_contents::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = values_.find(key);
  if (at == values_.end()) return std::nullopt;
  return at->second;
}

void store_contents::clear() {
  const std::lock_guard lock(mutex_);
  values_.clear();
  bytes_ = 0;
}

std::map<std::string, std::string> store_contents::copy() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

}  // namespace bootstrap

// ---- operations as requests ----

namespace {

// The part of an answer that an operation returns.
template <class T, class Part>
task<T> part_of(task<store_answer> answered, Part store_answer::* part) {
  store_answer answer = co_await std::move(answered);
  co_return static_cast<T>(std::move(answer.*part));
}

task<> end_of(task<store_answer> answered) { co_await std::move(answered); }

task<store_exchange> exchange_of(task<store_answer> answered) {
  store_answer answer = co_await std::move(answered);
  co_return store_exchange(answer.flag, std::move(answer.text));
}

}  // namespace

void store::set_timeout(milliseconds timeout) {
  if (timeout < milliseconds(0))
    base::throw_error(errc::invalid_argument, "the timeout of {} cannot be {}: give a positive one", name(),
                      base::duration_text(timeout));
  timeout_ = timeout;
}

std::string store::title_of(const store_request& what) const { return bootstrap::title_of(what, name()); }

task<store_answer> store::perform(store_request what) {
  if (what.key.empty() && what.operation != store_operation::count)
    base::throw_error(errc::invalid_argument, "{}: the key is empty; give it a name", title_of(what));
  const std::size_t bytes = what.key.size() + what.value.size() + what.expected.size();
  if (bytes > most_bytes()) {
    what.key.resize(std::min<std::size_t>(what.key.size(), 100));
    base::throw_error(errc::invalid_argument,
                      "{}: {} bytes are more than a store takes ({}); send large data through a communicator",
                      title_of(what), bytes, most_bytes());
  }
  if (what.timeout < milliseconds(0)) what.timeout = timeout_;
  return carry_out(std::move(what));
}

task<> store::set(std::string key, std::string value, milliseconds timeout) {
  return end_of(perform({.operation = store_operation::set,
                         .timeout = timeout,
                         .key = std::move(key),
                         .value = std::move(value)}));
}

task<std::string> store::get(std::string key, milliseconds timeout) {
  return part_of<std::string>(
      perform({.operation = store_operation::get, .timeout = timeout, .key = std::move(key)}),
      &store_answer::text);
}

task<> store::wait(std::string key, milliseconds timeout) {
  return end_of(perform({.operation = store_operation::wait, .timeout = timeout, .key = std::move(key)}));
}

task<std::int64_t> store::add(std::string key, std::int64_t amount, milliseconds timeout) {
  return part_of<std::int64_t>(
      perform(
          {.operation = store_operation::add, .timeout = timeout, .amount = amount, .key = std::move(key)}),
      &store_answer::amount);
}

task<store_exchange> store::compare_exchange(std::string key, std::string expected, std::string desired,
                                             milliseconds timeout) {
  return exchange_of(perform({.operation = store_operation::compare_exchange,
                              .timeout = timeout,
                              .key = std::move(key),
                              .value = std::move(desired),
                              .expected = std::move(expected)}));
}

task<bool> store::erase(std::string key, milliseconds timeout) {
  return part_of<bool>(
      perform({.operation = store_operation::erase, .timeout = timeout, .key = std::move(key)}),
      &store_answer::flag);
}

task<std::size_t> store::count(std::string prefix, milliseconds timeout) {
  return part_of<std::size_t>(
      perform({.operation = store_operation::count, .timeout = timeout, .key = std::move(prefix)}),
      &store_answer::amount);
}

task<std::size_t> store::append(std::string key, std::string text, milliseconds timeout) {
  return part_of<std::size_t>(perform({.operation = store_operation::append,
                                       .timeout = timeout,
                                       .key = std::move(key),
                                       .value = std::move(text)}),
                              &store_answer::amount);
}

memory_store::memory_store(boost::asio::any_io_executor executor)
    : memory_store(std::move(executor), std::make_shared<bootstrap::store_contents>(), "memory_store") {}

memory_store::memory_store(boost::asio::any_io_executor executor, const memory_store& other)
    : memory_store(std::move(executor), other.contents_, other.name_) {}

memory_store::memory_store(boost::asio::any_io_executor executor,
                           std::shared_ptr<bootstrap::store_contents> contents, std::string name)
    : executor_(std::move(executor)), contents_(std::move(contents)), name_(std::move(name)) {}

memory_store::~memory_store() = default;

task<store_answer> memory_store::carry_out(store_request what) {
  store_answer answer;
  if (!what.waits()) {
    answer = contents_->carry_out(what, name_);
    co_return std::move(answer);
  }
  const core::time_point deadline = core::deadline_after(what.timeout);
  const bootstrap::store_contents::watch watch(*contents_, what.key, executor_);
  for (bool in_time = what.timeout.count() > 0;;) {
    std::optional<std::string> value = contents_->find(what.key);
    if (value) {
      answer.text = std::move(*value);
      co_return std::move(answer);
    }
    if (!in_time) bootstrap::throw_missing_key(what, name_);
    in_time = co_await watch.changed().wait(deadline, bootstrap::title_of(what, name_));
  }
}

prefix_store::prefix_store(store& base, std::string prefix) : base_(base), prefix_(std::move(prefix) + "/") {
  set_timeout(base.timeout());
}

std::string prefix_store::name() const { return fmt::format("'{}' in {}", prefix_, base_.name()); }

task<store_answer> prefix_store::carry_out(store_request what) {
  what.key.insert(0, prefix_);
  return base_.perform(std::move(what));
}

}  // namespace tutti
