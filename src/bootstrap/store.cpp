// SPDX-License-Identifier: Apache-2.0
// The common part of all stores: checks of arguments, and operations as requests. And the stores that are
// little more: memory_store and prefix_store.
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/store_contents.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>

namespace tutti {
namespace {

void check(const store& s, const char* operation, const std::string& key, std::size_t value_bytes = 0) {
  if (key.empty())
    base::throw_error(errc::invalid_argument, "{} on {}: the key is empty; give it a name", operation,
                      s.name());
  if (key.size() + value_bytes > store::largest_value)
    base::throw_error(errc::invalid_argument,
                      "{}('{}') on {}: {} bytes are more than a store takes ({}); send large data through a "
                      "communicator",
                      operation, key.substr(0, 100), s.name(), key.size() + value_bytes,
                      store::largest_value);
}

}  // namespace

void store::set_timeout(milliseconds timeout) {
  if (timeout < milliseconds(0))
    base::throw_error(errc::invalid_argument, "the timeout of {} cannot be {}: give a positive one", name(),
                      base::duration_text(timeout));
  timeout_ = timeout;
}

task<> store::set(std::string key, std::string value, milliseconds timeout) {
  check(*this, "set", key, value.size());
  return do_set(std::move(key), std::move(value), real(timeout));
}

task<std::string> store::get(std::string key, milliseconds timeout) {
  check(*this, "get", key);
  return do_get(std::move(key), real(timeout));
}

task<> store::wait(std::string key, milliseconds timeout) {
  check(*this, "wait", key);
  return do_wait(std::move(key), real(timeout));
}

task<std::int64_t> store::add(std::string key, std::int64_t amount, milliseconds timeout) {
  check(*this, "add", key);
  return do_add(std::move(key), amount, real(timeout));
}

task<store_exchange> store::compare_exchange(std::string key, std::string expected, std::string desired,
                                             milliseconds timeout) {
  check(*this, "compare_exchange", key, expected.size() + desired.size());
  return do_compare_exchange(std::move(key), std::move(expected), std::move(desired), real(timeout));
}

task<bool> store::erase(std::string key, milliseconds timeout) {
  check(*this, "erase", key);
  return do_erase(std::move(key), real(timeout));
}

task<std::size_t> store::count(std::string prefix, milliseconds timeout) {
  if (!prefix.empty()) check(*this, "count", prefix);
  return do_count(std::move(prefix), real(timeout));
}

task<std::size_t> store::append(std::string key, std::string text, milliseconds timeout) {
  check(*this, "append", key, text.size());
  return do_append(std::move(key), std::move(text), real(timeout));
}

namespace detail {

using bootstrap::store_answer;
using bootstrap::store_operation;
using bootstrap::store_request;

namespace {

store_request make_request(store_operation what, std::string key, std::chrono::milliseconds timeout,
                           std::string value = {}, std::string expected = {}) {
  store_request request;
  request.operation = what;
  request.timeout_ms = static_cast<std::uint64_t>(timeout.count());
  request.key = std::move(key);
  request.value = std::move(value);
  request.expected = std::move(expected);
  return request;
}

}  // namespace

task<> request_store::do_set(std::string key, std::string value, milliseconds timeout) {
  co_await carry_out(make_request(store_operation::set, std::move(key), timeout, std::move(value)));
}

task<std::string> request_store::do_get(std::string key, milliseconds timeout) {
  store_answer answer = co_await carry_out(make_request(store_operation::get, std::move(key), timeout));
  co_return std::move(answer.text);
}

task<> request_store::do_wait(std::string key, milliseconds timeout) {
  co_await carry_out(make_request(store_operation::wait, std::move(key), timeout));
}

task<std::int64_t> request_store::do_add(std::string key, std::int64_t amount, milliseconds timeout) {
  store_request request = make_request(store_operation::add, std::move(key), timeout);
  request.amount = amount;
  const store_answer answer = co_await carry_out(std::move(request));
  co_return answer.amount;
}

task<store_exchange> request_store::do_compare_exchange(std::string key, std::string expected,
                                                        std::string desired, milliseconds timeout) {
  store_answer answer = co_await carry_out(make_request(store_operation::compare_exchange, std::move(key),
                                                        timeout, std::move(desired), std::move(expected)));
  co_return store_exchange(answer.flag, std::move(answer.text));
}

task<bool> request_store::do_erase(std::string key, milliseconds timeout) {
  const store_answer answer =
      co_await carry_out(make_request(store_operation::erase, std::move(key), timeout));
  co_return answer.flag;
}

task<std::size_t> request_store::do_count(std::string prefix, milliseconds timeout) {
  const store_answer answer =
      co_await carry_out(make_request(store_operation::count, std::move(prefix), timeout));
  co_return static_cast<std::size_t>(answer.amount);
}

task<std::size_t> request_store::do_append(std::string key, std::string text, milliseconds timeout) {
  const store_answer answer =
      co_await carry_out(make_request(store_operation::append, std::move(key), timeout, std::move(text)));
  co_return static_cast<std::size_t>(answer.amount);
}

}  // namespace detail

task<bootstrap::store_answer> bootstrap::perform(store& on, store_request what) {
  const std::chrono::milliseconds timeout = what.timeout();
  store_answer answer;
  switch (what.operation) {
    case store_operation::set:
      co_await on.set(std::move(what.key), std::move(what.value), timeout);
      break;
    case store_operation::get:
      answer.text = co_await on.get(std::move(what.key), timeout);
      break;
    case store_operation::wait:
      co_await on.wait(std::move(what.key), timeout);
      break;
    case store_operation::add:
      answer.amount = co_await on.add(std::move(what.key), what.amount, timeout);
      break;
    case store_operation::compare_exchange: {
      store_exchange result = co_await on.compare_exchange(std::move(what.key), std::move(what.expected),
                                                           std::move(what.value), timeout);
      answer.flag = result.exchanged;
      answer.text = std::move(result.value);
      break;
    }
    case store_operation::erase:
      answer.flag = co_await on.erase(std::move(what.key), timeout);
      break;
    case store_operation::count:
      answer.amount = static_cast<std::int64_t>(co_await on.count(std::move(what.key), timeout));
      break;
    case store_operation::append:
      answer.amount =
          static_cast<std::int64_t>(co_await on.append(std::move(what.key), std::move(what.value), timeout));
      break;
  }
  co_return std::move(answer);
}

memory_store::memory_store(boost::asio::any_io_executor executor)
    : memory_store(std::move(executor), std::make_shared<bootstrap::store_contents>(), "memory_store") {}

memory_store::memory_store(boost::asio::any_io_executor executor, const memory_store& other)
    : memory_store(std::move(executor), other.contents_, other.name_) {}

memory_store::memory_store(boost::asio::any_io_executor executor,
                           std::shared_ptr<bootstrap::store_contents> contents, std::string name)
    : executor_(std::move(executor)), contents_(std::move(contents)), name_(std::move(name)) {}

memory_store::~memory_store() = default;

task<bootstrap::store_answer> memory_store::carry_out(bootstrap::store_request what) {
  bootstrap::store_answer answer;
  if (what.waits()) {
    const core::time_point deadline = core::deadline_after(what.timeout());
    answer.text = co_await bootstrap::await_key(*contents_, executor_, std::move(what), name_, deadline);
  } else {
    answer = bootstrap::carry_out(*contents_, what, name_);
  }
  co_return std::move(answer);
}

prefix_store::prefix_store(store& base, std::string prefix) : base_(base), prefix_(std::move(prefix) + "/") {
  set_timeout(base.timeout());
}

std::string prefix_store::name() const { return fmt::format("'{}' in {}", prefix_, base_.name()); }

task<bootstrap::store_answer> prefix_store::carry_out(bootstrap::store_request what) {
  what.key.insert(0, prefix_);
  return bootstrap::perform(base_, std::move(what));
}

}  // namespace tutti
