// SPDX-License-Identifier: Apache-2.0
// Words for error texts.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <string_view>

namespace tutti::base {

// "30 s", "1.5 s", "20 ms".
std::string duration_text(std::chrono::milliseconds d);

// The words of an errno value.
std::string errno_text(int code);

// Short enough to need no memory itself.
inline constexpr const char* no_words = "(no memory)";

// What make() returns, or, where there is no memory for it, words that need none. For texts that go with a
// failure: it must be told even then.
template <class Make>
std::string words(const Make& make) noexcept {
  try {
    return make();
  } catch (const std::exception&) {
    return no_words;
  }
}

// The same for a copy.
inline void copy_words(std::string& to, std::string_view from) noexcept {
  try {
    to = from;
  } catch (const std::exception&) {
    to = no_words;
  }
}

}  // namespace tutti::base
