// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_contents.hpp"
#include "bootstrap/store_errors.hpp"

#include <tutti/store.hpp>
#include <utility>

namespace tutti {
namespace {

// Returns the value that the key has, or is given within the time.
task<std::string> await_key(bootstrap::store_contents& contents, boost::asio::any_io_executor executor,
                            std::string_view operation, std::string key, std::string store,
                            std::chrono::milliseconds timeout) {
  const core::time_point deadline = core::deadline_after(timeout);
  std::optional<std::string> value = contents.find(key);
  if (value) co_return std::move(*value);
  core::wakeup changed(executor);
  const bootstrap::store_contents::watch watch(contents, key, executor, changed);
  for (bool in_time = true;;) {
    value = contents.find(key);
    if (value) co_return std::move(*value);
    if (!in_time || timeout.count() == 0) bootstrap::throw_missing_key(operation, key, store, timeout);
    in_time = co_await changed.wait(deadline, bootstrap::title_of(operation, key, store));
  }
}

}  // namespace

memory_store::memory_store(boost::asio::any_io_executor executor)
    : memory_store(std::move(executor), std::make_shared<bootstrap::store_contents>(), "memory_store") {}

memory_store::memory_store(boost::asio::any_io_executor executor, const memory_store& other)
    : memory_store(std::move(executor), other.contents_, other.name_) {}

memory_store::memory_store(boost::asio::any_io_executor executor,
                           std::shared_ptr<bootstrap::store_contents> contents, std::string name)
    : executor_(std::move(executor)), contents_(std::move(contents)), name_(std::move(name)) {}

memory_store::~memory_store() = default;

task<> memory_store::do_set(std::string key, std::string value, milliseconds) {
  contents_->set(key, std::move(value));
  co_return;
}

task<std::string> memory_store::do_get(std::string key, milliseconds timeout) {
  return await_key(*contents_, executor_, "get", std::move(key), name_, timeout);
}

task<> memory_store::do_wait(std::string key, milliseconds timeout) {
  co_await await_key(*contents_, executor_, "wait", std::move(key), name_, timeout);
}

task<std::int64_t> memory_store::do_add(std::string key, std::int64_t amount, milliseconds) {
  const std::optional<std::int64_t> total = contents_->add(key, amount);
  if (!total) bootstrap::throw_bad_add(key, name_);
  co_return *total;
}

task<store_exchange> memory_store::do_compare_exchange(std::string key, std::string expected,
                                                       std::string desired, milliseconds) {
  co_return contents_->compare_exchange(key, expected, std::move(desired));
}

task<bool> memory_store::do_erase(std::string key, milliseconds) { co_return contents_->erase(key); }

task<std::size_t> memory_store::do_count(std::string prefix, milliseconds) {
  co_return contents_->count(prefix);
}

task<std::size_t> memory_store::do_append(std::string key, std::string text, milliseconds) {
  const std::optional<std::size_t> length = contents_->append(key, text, store::largest_value);
  if (!length) bootstrap::throw_too_long(key, name_);
  co_return *length;
}

}  // namespace tutti
