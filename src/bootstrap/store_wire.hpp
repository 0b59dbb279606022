// SPDX-License-Identifier: Apache-2.0
// The messages between tcp_store and its server, after the handshake.
//
// A message is its length (4 bytes) and that many bytes. All requests have one form, and all answers another.
// An answer carries the number of its request, so that a wait delays nothing behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/error.hpp>

namespace tutti::bootstrap {

inline constexpr std::size_t longest_message = 16u << 20;

enum class store_operation : std::uint8_t { set = 1, get, wait, add, compare_exchange, erase, count, append };

struct store_request {
  std::uint64_t number = 0;
  store_operation operation = store_operation::set;
  std::uint64_t timeout_ms = 0;
  std::int64_t amount = 0;  // of add
  std::string key;          // of count: the prefix
  std::string value;        // of set, append; of compare_exchange: the desired value
  std::string expected;     // of compare_exchange
};

struct store_answer {
  std::uint64_t number = 0;
  errc code = errc::success;
  bool flag = false;        // of compare_exchange and erase
  std::int64_t amount = 0;  // of add, count and append
  std::string text;         // the value; or what went wrong
};

// Encodes whole messages, including the length.
std::string encode(const store_request& request);
std::string encode(const store_answer& answer);
// Decodes a message without its length. Throws errc::protocol on anything that encode() does not make.
store_request decode_request(std::string_view message);
store_answer decode_answer(std::string_view message);

}  // namespace tutti::bootstrap
