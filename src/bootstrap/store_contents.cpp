// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_contents.hpp"

#include "base/text.hpp"
#include "base/throw_error.hpp"

#include <boost/asio/post.hpp>
#include <utility>

namespace tutti::bootstrap {

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
void store_contents::tell(waiters::iterator first, waiters::iterator last) {
  for (auto at = first; at != last; ++at)
    boost::asio::post(at->second.executor, [changed = at->second.changed] { changed->notify(); });
}

void store_contents::tell(const std::string& key) {
  const auto [first, last] = waiters_.equal_range(key);
  tell(first, last);
}

void store_contents::tell_all() {
  const std::lock_guard lock(mutex_);
  tell(waiters_.begin(), waiters_.end());
}

void store_contents::set(const std::string& key, std::string value) {
  const std::lock_guard lock(mutex_);
  tell(key);
  values_.insert_or_assign(key, std::move(value));
}

std::optional<std::string> store_contents::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = values_.find(key);
  if (at == values_.end()) return std::nullopt;
  return at->second;
}

std::optional<std::int64_t> store_contents::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  if (const auto at = values_.find(key); at != values_.end()) {
    const auto before = base::to_number<std::int64_t>(at->second);
    if (!before) return std::nullopt;
    sum = *before;
  }
  if (__builtin_add_overflow(sum, amount, &sum)) return std::nullopt;
  tell(key);
  values_.insert_or_assign(key, std::to_string(sum));
  return sum;
}

store_exchange store_contents::compare_exchange(const std::string& key, const std::string& expected,
                                                std::string desired) {
  const std::lock_guard lock(mutex_);
  const auto at = values_.find(key);
  std::string now = at == values_.end() ? std::string() : at->second;
  if (now != expected) return {false, std::move(now)};
  tell(key);
  values_.insert_or_assign(key, desired);
  return {true, std::move(desired)};
}

bool store_contents::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_.erase(key) > 0;
}

std::size_t store_contents::count(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  std::size_t number = 0;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix); ++at)
    ++number;
  return number;
}

std::optional<std::size_t> store_contents::append(const std::string& key, const std::string& text,
                                                  std::size_t limit) {
  const std::lock_guard lock(mutex_);
  const auto at = values_.find(key);
  const std::size_t before = at == values_.end() ? 0 : at->second.size();
  if (key.size() + before + text.size() > limit) return std::nullopt;
  tell(key);
  values_[key] += text;
  return before + text.size();
}

void store_contents::clear() {
  const std::lock_guard lock(mutex_);
  values_.clear();
}

std::map<std::string, std::string> store_contents::copy() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

store_answer carry_out(store_contents& on, const store_request& what, const std::string& store) {
  store_answer answer;
  switch (what.operation) {
    case store_operation::set:
      on.set(what.key, what.value);
      break;
    case store_operation::add: {
      const std::optional<std::int64_t> sum = on.add(what.key, what.amount);
      if (!sum)
        base::throw_error(errc::invalid_argument,
                          "{}: the key does not hold a decimal number, or the sum has more than 64 bits; use "
                          "a key of its own for each counter",
                          title_of(what, store));
      answer.amount = *sum;
      break;
    }
    case store_operation::compare_exchange: {
      store_exchange result = on.compare_exchange(what.key, what.expected, what.value);
      answer.flag = result.exchanged;
      answer.text = std::move(result.value);
      break;
    }
    case store_operation::erase:
      answer.flag = on.erase(what.key);
      break;
    case store_operation::count:
      answer.amount = static_cast<std::int64_t>(on.count(what.key));
      break;
    case store_operation::append: {
      const std::optional<std::size_t> length = on.append(what.key, what.value, tutti::store::largest_value);
      if (!length)
        base::throw_error(errc::resources,
                          "{}: the value would have more than {} bytes; spread it over several keys",
                          title_of(what, store), tutti::store::largest_value);
      answer.amount = static_cast<std::int64_t>(*length);
      break;
    }
    case store_operation::get:
    case store_operation::wait:
      break;  // see await_key()
  }
  return answer;
}

task<std::string> await_key(store_contents& in, boost::asio::any_io_executor executor, store_request what,
                            std::string store, core::time_point deadline, const std::exception_ptr* trouble) {
  std::optional<std::string> value = in.find(what.key);
  if (value) co_return std::move(*value);
  const store_contents::watch watch(in, what.key, executor);
  for (bool in_time = true;;) {
    value = in.find(what.key);
    if (value) co_return std::move(*value);
    if (trouble != nullptr && *trouble) std::rethrow_exception(*trouble);
    if (!in_time || what.timeout_ms == 0) throw_missing_key(what, store);
    in_time = co_await watch.changed().wait(deadline, title_of(what, store));
  }
}

}  // namespace tutti::bootstrap
