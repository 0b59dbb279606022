// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/address.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <tutti/error.hpp>

namespace {

using namespace tutti;
using namespace tutti::transport;

// A variable of the environment for the length of a test; null: absent.
class variable {
 public:
  variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) before_ = old;
    set(value);
  }
  variable(const variable&) = delete;
  ~variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(const char* value) {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

std::string address_with(const char* chosen, const char* master, bool has_secret) {
  const variable a("TUTTI_ADDRESS", chosen);
  const variable m("MASTER_ADDR", master);
  return tcp::listen_address(has_secret);
}

std::string refusal(const char* chosen, const char* master, bool has_secret) {
  try {
    address_with(chosen, master, has_secret);
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_argument);
    return e.what();
  }
  return {};
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("tcp address: loopback, unless a secret and a way to the master call for more") {
  CHECK(address_with(nullptr, nullptr, false) == "127.0.0.1");
  CHECK(address_with(nullptr, "192.0.2.1", false) == "127.0.0.1");
  CHECK(address_with(nullptr, nullptr, true) == "127.0.0.1");
  CHECK(address_with(nullptr, "127.0.0.1", true) == "127.0.0.1");
  CHECK(address_with(nullptr, "127.0.1.1", true) == "127.0.0.1");
  CHECK(address_with(nullptr, "::1", true) == "::1");
  const std::string by_name = address_with(nullptr, "localhost", true);
  CHECK((by_name == "127.0.0.1" || by_name == "::1"));
}

TEST_CASE("tcp address: TUTTI_ADDRESS is taken at its word, and refused where it cannot be meant") {
  CHECK(address_with("10.1.2.3", "127.0.0.1", true) == "10.1.2.3");
  CHECK(address_with("127.0.0.2", nullptr, false) == "127.0.0.2");
  CHECK(address_with("::1", nullptr, false) == "::1");
  CHECK(contains(refusal("10.1.2.3", nullptr, false), "TUTTI_SECRET"));
  CHECK(contains(refusal("eth0", nullptr, true), "TUTTI_ADDRESS='eth0'"));
  CHECK(contains(refusal("0.0.0.0", nullptr, true), "TUTTI_ADDRESS='0.0.0.0'"));
  CHECK(contains(refusal("::", nullptr, true), "TUTTI_ADDRESS='::'"));
  CHECK(contains(refusal("10.1.2.3:80", nullptr, true), "numeric address"));
}

TEST_CASE("tcp address: a master that cannot be found is named") {
  CHECK(contains(refusal(nullptr, "no-such-host.invalid", true), "MASTER_ADDR='no-such-host.invalid'"));
}

TEST_CASE("tcp address: endpoints are written and read") {
  CHECK(core::endpoint_text(tcp::parse_endpoint("127.0.0.1:4711")) == "127.0.0.1:4711");
  CHECK(core::endpoint_text(tcp::parse_endpoint("[fd00::7]:80")) == "[fd00::7]:80");
  CHECK(tcp::is_loopback("127.0.0.1:1"));
  CHECK(tcp::is_loopback("[::1]:1"));
  CHECK_FALSE(tcp::is_loopback("10.0.0.1:1"));
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:8x",
                          "host:80", ":80", "[::1:80", "::1"})
    CHECK_THROWS_AS(tcp::parse_endpoint(bad), error);
}

TEST_CASE("tcp address: a listener has a port of its own and is not inherited") {
  const tcp::listener one = tcp::open_listener("127.0.0.1");
  const tcp::listener two = tcp::open_listener("127.0.0.1");
  CHECK(one.endpoint != two.endpoint);
  CHECK(one.endpoint.starts_with("127.0.0.1:"));
  CHECK_NOTHROW(tcp::parse_endpoint(one.endpoint));
}

TEST_CASE("tcp address: an address of another host is an error that names the cure") {
  try {
    tcp::open_listener("192.0.2.77");  // reserved for documentation
    FAIL("listened at another host's address");
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_argument);
    CHECK(contains(e.what(), "TUTTI_ADDRESS"));
  }
}
