// SPDX-License-Identifier: Apache-2.0
// An operation of a store as a value, and its result: in one form for all kinds of stores, and for the
// messages between tcp_store and its server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/error.hpp>

namespace tutti {

class store;
template <class T>
class task;

namespace bootstrap {

enum class store_operation : std::uint8_t { set = 1, get, wait, add, compare_exchange, erase, count, append };

struct store_request {
  std::uint64_t number = 0;  // of tcp_store: its answer has the same, so that a wait delays nothing behind it
  store_operation operation = store_operation::set;
  std::uint64_t timeout_ms = 0;
  std::int64_t amount = 0;  // of add
  std::string key;          // of count: the prefix
  std::string value;        // of set, append; of compare_exchange: the desired value
  std::string expected;     // of compare_exchange

  std::chrono::milliseconds timeout() const noexcept;
  bool waits() const noexcept {
    return operation == store_operation::get || operation == store_operation::wait;
  }
};

struct store_answer {
  std::uint64_t number = 0;
  errc code = errc::success;
  bool flag = false;        // of compare_exchange and erase
  std::int64_t amount = 0;  // of add, count and append
  std::string text;         // the value; or what went wrong
};

// Calls the function of a store that is meant. Errors are thrown.
task<store_answer> perform(store& on, store_request what);

// "get('a key') on memory_store": how texts name an operation of a store.
std::string title_of(const store_request& what, const std::string& store);
// Throws errc::timed_out for a key that was not set in time.
[[noreturn]] void throw_missing_key(const store_request& what, const std::string& store);

std::string encode(const store_request& request);
std::string encode(const store_answer& answer);
// These throw errc::protocol on anything that encode() does not make.
store_request decode_request(std::string_view message);
store_answer decode_answer(std::string_view message);

}  // namespace bootstrap
}  // namespace tutti
