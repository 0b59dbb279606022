// SPDX-License-Identifier: Apache-2.0
// peer_table: what ranks publish about themselves, as text: versioned, one endpoint record per line.
#pragma once

#include "core/world_info.hpp"

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tutti::bootstrap {

// Describes this process, without addresses. TUTTI_HOST_ID simulates another host: ranks whose values differ
// do not share memory.
core::endpoint_record local_endpoint_record(int rank);
// One line with its end. Throws errc::invalid_argument if a field is longer than any real one.
std::string encode_endpoint_record(const core::endpoint_record& record);
// All endpoint records that encode_endpoint_record() made, in order. Throws errc::protocol for anything else.
std::vector<core::endpoint_record> decode_endpoint_records(std::string_view lines);

// The table of a world: its id, and the endpoint records of all ranks in order.
struct peer_table {
  std::uint64_t id = 0;  // 0: no world
  std::vector<core::endpoint_record> records;
};
std::uint64_t random_world_id();
std::string encode_table(const peer_table& table);
// Throws errc::protocol unless it is a table of `size` ranks, each once.
peer_table decode_table(std::string_view text, int size);

// Encodes any word as characters without spaces; and back.
std::string encode_word(std::string_view word);
std::string decode_word(std::string_view text);

// Reads the words of a line in a store. Throws errc::protocol for what is not as asked for; `what` names the
// line.
class word_reader {
 public:
  word_reader(std::string_view line, const char* what) noexcept : rest_(line), what_(what) {}
  std::string_view next();
  std::string word() { return decode_word(next()); }
  template <class T>
  T number(int base = 10) {
    const std::string_view text = next();
    T value{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (code != std::errc{} || end != text.data() + text.size()) refuse();
    return value;
  }
  void expect(std::string_view text) {
    if (next() != text) refuse();
  }
  void expect_end() const {
    if (more_) refuse();
  }
  [[noreturn]] void refuse() const;

 private:
  std::string_view rest_;
  const char* what_;
  bool more_ = true;
};

}  // namespace tutti::bootstrap
