// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>
#include <set>
#include <string>
#include <system_error>
#include <tutti/error.hpp>
#include <type_traits>

using tutti::errc;

namespace {

static_assert(std::is_base_of_v<std::system_error, tutti::error>);
static_assert(std::is_nothrow_copy_constructible_v<tutti::error>);  // exceptions must not throw when copied

}  // namespace

TEST_CASE("every error code has a text of its own") {
  std::set<std::string> all;
  constexpr int last = static_cast<int>(errc::system);
  for (int code = 0; code <= last; ++code) {
    const std::string words = tutti::error_category().message(code);
    CHECK(words.find("unknown") == std::string::npos);
    all.insert(words);
  }
  CHECK(all.size() == last + 1);
  CHECK(tutti::error_category().message(last + 1) == "unknown tutti error");
  CHECK(tutti::error_category().message(-1) == "unknown tutti error");
  CHECK(tutti::error_category().name() == std::string("tutti"));
}

TEST_CASE("success is false, everything else is true") {
  CHECK_FALSE(tutti::make_error_code(errc::success));
  CHECK(tutti::make_error_code(errc::invalid_argument));
}

TEST_CASE("codes compare equal to tutti's and the standard's conditions") {
  const std::error_code timed_out = errc::timed_out;
  CHECK(timed_out == errc::timed_out);
  CHECK(timed_out != errc::cancelled);
  CHECK(timed_out == std::errc::timed_out);
  CHECK(std::error_code(errc::cancelled) == std::errc::operation_canceled);
  CHECK(std::error_code(errc::invalid_argument) == std::errc::invalid_argument);
  CHECK(std::error_code(errc::truncated) == std::errc::message_size);
  CHECK(std::error_code(errc::not_supported) == std::errc::not_supported);
  CHECK(std::error_code(errc::peer_failed) != std::errc::timed_out);
}

TEST_CASE("tutti's codes convert to Asio's error_code and still compare equal") {
  const boost::system::error_code code = tutti::make_error_code(errc::peer_left);
  CHECK(code == errc::peer_left);
  CHECK(code != errc::peer_failed);
  CHECK(code.message() == tutti::error_category().message(static_cast<int>(errc::peer_left)));
  const boost::system::error_code direct = errc::truncated;
  CHECK(direct == errc::truncated);
  CHECK(code != boost::asio::error::operation_aborted);
  try {
    throw boost::system::system_error(code);
  } catch (const boost::system::system_error& e) {
    CHECK(e.code() == errc::peer_left);
  }
}

TEST_CASE("what() of an error is its text alone") {
  const tutti::error e(errc::mismatch, "all ranks must call the same");
  CHECK(e.code() == errc::mismatch);
  CHECK(e.what() == std::string("all ranks must call the same"));
  const tutti::error copy = e;
  CHECK(copy.what() == std::string("all ranks must call the same"));
  try {
    throw e;
  } catch (const std::system_error& caught) {
    CHECK(caught.code() == errc::mismatch);
    CHECK(caught.what() == std::string("all ranks must call the same"));
  }
}
