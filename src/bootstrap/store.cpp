// SPDX-License-Identifier: Apache-2.0
// The common part of all stores: checks of arguments. And prefix_store.
#include "base/text.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <tutti/store.hpp>
#include <utility>

namespace tutti {
namespace {

void check(const store& s, const char* operation, const std::string& key, std::size_t value_bytes = 0) {
  if (key.empty())
    throw error(errc::invalid_argument,
                fmt::format("{} on {}: the key is empty; give it a name", operation, s.name()));
  if (key.size() + value_bytes > store::largest_value)
    throw error(
        errc::invalid_argument,
        fmt::format("{}('{}') on {}: {} bytes are more than a store takes ({}); send large data through a "
                    "communicator",
                    operation, key.substr(0, 100), s.name(), key.size() + value_bytes, store::largest_value));
}

}  // namespace

void store::set_timeout(milliseconds timeout) {
  if (timeout < milliseconds(0))
    throw error(errc::invalid_argument, fmt::format("the timeout of {} cannot be {}: give a positive one",
                                                    name(), base::duration_text(timeout)));
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

prefix_store::prefix_store(store& base, std::string prefix) : base_(base), prefix_(std::move(prefix) + "/") {
  set_timeout(base.timeout());
}

std::string prefix_store::name() const { return fmt::format("'{}' in {}", prefix_, base_.name()); }

task<> prefix_store::do_set(std::string key, std::string value, milliseconds timeout) {
  return base_.set(prefix_ + key, std::move(value), timeout);
}

task<std::string> prefix_store::do_get(std::string key, milliseconds timeout) {
  return base_.get(prefix_ + key, timeout);
}

task<> prefix_store::do_wait(std::string key, milliseconds timeout) {
  return base_.wait(prefix_ + key, timeout);
}

task<std::int64_t> prefix_store::do_add(std::string key, std::int64_t amount, milliseconds timeout) {
  return base_.add(prefix_ + key, amount, timeout);
}

task<store_exchange> prefix_store::do_compare_exchange(std::string key, std::string expected,
                                                       std::string desired, milliseconds timeout) {
  return base_.compare_exchange(prefix_ + key, std::move(expected), std::move(desired), timeout);
}

task<bool> prefix_store::do_erase(std::string key, milliseconds timeout) {
  return base_.erase(prefix_ + key, timeout);
}

task<std::size_t> prefix_store::do_count(std::string prefix, milliseconds timeout) {
  return base_.count(prefix_ + prefix, timeout);
}

task<std::size_t> prefix_store::do_append(std::string key, std::string text, milliseconds timeout) {
  return base_.append(prefix_ + key, std::move(text), timeout);
}

}  // namespace tutti
