// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace tutti;

namespace {

std::string hmac_hex(const std::string& key, const std::string& data) {
  return base::to_hex(
      base::hmac_sha256(key, {reinterpret_cast<const std::uint8_t*>(data.data()), data.size()}));
}

}  // namespace

TEST_CASE("HMAC-SHA256 matches the vectors of RFC 4231") {
  CHECK(hmac_hex(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac_hex("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_hex(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char c = 1; c <= 25; ++c) counting.push_back(c);
  CHECK(hmac_hex(counting, std::string(50, '\xcd')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(hmac_hex(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32) ==
        "a3b6167473100ee06e0c796c2955552b");
  CHECK(hmac_hex(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac_hex(std::string(131, '\xaa'),
                 "This is a test using a larger than block-size key and a larger than block-size data. The "
                 "key needs to be "
                 "hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("HMAC-SHA256 accepts an empty key and an empty message") {
  CHECK(hmac_hex("", "") == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  // Must not reuse the key of the previous call.
  hmac_hex("another", "key");
  CHECK(hmac_hex("", "") == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("comparison detects every difference") {
  base::digest a{};
  base::fill_random(a);
  for (std::size_t i = 0; i < a.size(); ++i) {
    base::digest b = a;
    CHECK(base::equal_in_constant_time(a, b));
    b[i] ^= 1;
    CHECK_FALSE(base::equal_in_constant_time(a, b));
  }
  CHECK_FALSE(base::equal_in_constant_time(a, std::span(a).first(31)));
  CHECK(base::equal_in_constant_time({}, {}));
}

TEST_CASE("random text has the requested length and does not repeat") {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string text = base::random_hex(16);
    CHECK(text.size() == 32);
    CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
    CHECK(seen.insert(text).second);
  }
  CHECK(base::random_hex(0).empty());
}
