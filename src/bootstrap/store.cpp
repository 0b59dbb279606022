// SPDX-License-Identifier: Apache-2.0
// The common part of all stores: operations as requests, and checks of them. And the stores that are little more:
// memory_store and prefix_store.
#include "base/text.hpp"
#include "base/throw_error.hpp"
#include "bootstrap/store_contents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>

namespace tutti {
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

task<store_answer> store::perform(store_request what) {
  if (what.key.empty() && what.operation != store_operation::count)
    base::throw_error(errc::invalid_argument, "{}: the key is empty; give it a name",
                      bootstrap::title_of(what, name()));
  const std::size_t bytes = what.key.size() + what.value.size() + what.expected.size();
  if (bytes > largest_value) {
    what.key.resize(std::min<std::size_t>(what.key.size(), 100));
    base::throw_error(errc::invalid_argument,
                      "{}: {} bytes are more than a store takes ({}); send large data through a communicator",
                      bootstrap::title_of(what, name()), bytes, largest_value);
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
  if (what.waits()) {
    const core::time_point deadline = core::deadline_after(what.timeout);
    answer.text = co_await bootstrap::await_key(*contents_, executor_, std::move(what), name_, deadline);
  } else {
    answer = contents_->carry_out(what, name_);
  }
  co_return std::move(answer);
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
