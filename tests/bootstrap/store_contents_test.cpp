// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_contents.hpp"
#include "base/fields.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace tutti;
using namespace tutti::bootstrap;
using base::to_bytes;

namespace {

store_request sample_request() {
  store_request r;
  r.number = 0x1122334455667788;
  r.operation = store_operation::compare_exchange;
  r.timeout = std::chrono::milliseconds(12345);
  r.amount = -9;
  r.key = "key";
  r.value = std::string("a\0b", 3);
  return r;
}

}  // namespace

TEST_CASE("requests and answers survive the round trip") {
  const store_request sent = sample_request();
  const store_request got = decode_request(to_bytes(sent));
  CHECK(got.number == sent.number);
  CHECK(got.operation == sent.operation);
  CHECK((got.timeout == sent.timeout));
  CHECK(got.amount == sent.amount);
  CHECK(got.key == sent.key);
  CHECK(got.value == sent.value);
  CHECK(got.expected.empty());

  store_answer answer;
  answer.number = 7;
  answer.code = errc::resources;
  answer.flag = true;
  answer.amount = INT64_MIN;
  answer.text = "words";
  const store_answer back = decode_answer(to_bytes(answer));
  CHECK(back.number == 7);
  CHECK(back.code == errc::resources);
  CHECK(back.flag);
  CHECK(back.amount == INT64_MIN);
  CHECK(back.text == "words");
}

TEST_CASE("a truncated or too long message is refused") {
  const std::string whole = to_bytes(sample_request());
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK_THROWS_AS(decode_request(whole.substr(0, length)), error);
  CHECK_THROWS_AS(decode_request(whole + "x"), error);
  const std::string answer = to_bytes(store_answer());
  for (std::size_t length = 0; length < answer.size(); ++length)
    CHECK_THROWS_AS(decode_answer(answer.substr(0, length)), error);
  CHECK_THROWS_AS(decode_answer(answer + "x"), error);
}

TEST_CASE("wrong lengths and invalid numbers are refused") {
  const std::string whole = to_bytes(sample_request());
  for (const char operation : {'\0', '\x09', '\xff'}) {
    std::string wrong = whole;
    wrong[8] = operation;
    CHECK_THROWS_AS(decode_request(wrong), error);
  }
  // Any byte may have any value: the result is a request or an error, without reading out of bounds.
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(0xff);
    try {
      const store_request got = decode_request(wrong);
      CHECK(got.key.size() + got.value.size() + got.expected.size() <= whole.size());
    } catch (const error& e) {
      CHECK(e.code() == errc::protocol);
    }
  }
  std::string answer = to_bytes(store_answer());
  answer[8] = 100;
  CHECK_THROWS_AS(decode_answer(answer), error);
}
