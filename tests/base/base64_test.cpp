// SPDX-License-Identifier: Apache-2.0
#include "base/base64.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tutti;

TEST_CASE("base64 of all lengths, there and back") {
  CHECK(base::to_base64("") == "");
  CHECK(base::to_base64("f") == "Zg==");
  CHECK(base::to_base64("foobar") == "Zm9vYmFy");
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    const std::string text = base::to_base64(bytes);
    CHECK(text.size() == (bytes.size() + 2) / 3 * 4);
    CHECK(base::from_base64(text) == bytes);
    bytes.push_back(static_cast<char>(i * 7));
  }
}

TEST_CASE("other text is refused") {
  for (const char* text : {"Z", "Zg", "Zg=", "Zm9v!mFy", "Zg==Zg=="}) CHECK_FALSE(base::from_base64(text));
}
