// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/listen_address.hpp"

#include "support/contains.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <tutti/error.hpp>
#include <utility>

namespace {

using namespace tutti;
using namespace tutti::transport;

// Sets an environment variable for a test; nullptr unsets it.
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

std::string address_with(const char* chosen, std::optional<std::string> master, bool has_secret,
                         const char* interface = nullptr) {
  const variable a("TUTTI_ADDRESS", chosen);
  const variable i("TUTTI_INTERFACE", interface);
  bootstrap::endpoints found;
  if (!master.value_or("").empty())
    found = bootstrap::resolve_host_blocking(*master, 1, core::clock::now() + std::chrono::seconds(1));
  return tcp::listen_address({has_secret, std::move(master), std::move(found)});
}

std::string refusal(const char* chosen, std::optional<std::string> master, bool has_secret,
                    const char* interface = nullptr) {
  try {
    address_with(chosen, std::move(master), has_secret, interface);
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_argument);
    return e.what();
  }
  return {};
}

using tutti::test::contains;

}  // namespace

TEST_CASE("tcp address: loopback, unless there is a secret and a route to the master") {
  CHECK(address_with(nullptr, std::nullopt, false) == "127.0.0.1");
  CHECK(address_with(nullptr, "192.0.2.1", false) == "127.0.0.1");
  CHECK(address_with(nullptr, std::nullopt, true) == "127.0.0.1");
  CHECK(address_with(nullptr, "127.0.0.1", true) == "127.0.0.1");
  CHECK(address_with(nullptr, "127.0.1.1", true) == "127.0.0.1");
  CHECK(address_with(nullptr, "::1", true) == "::1");
  const std::string by_name = address_with(nullptr, "localhost", true);
  CHECK((by_name == "127.0.0.1" || by_name == "::1"));
}

TEST_CASE("tcp address: TUTTI_ADDRESS is used as it is, and refused if it is invalid") {
  CHECK(address_with("10.1.2.3", "127.0.0.1", true) == "10.1.2.3");
  CHECK(address_with("127.0.0.2", std::nullopt, false) == "127.0.0.2");
  CHECK(address_with("::1", std::nullopt, false) == "::1");
  CHECK(contains(refusal("10.1.2.3", std::nullopt, false), "TUTTI_SECRET"));
  CHECK(contains(refusal("eth0", std::nullopt, true), "TUTTI_ADDRESS='eth0'"));
  CHECK(contains(refusal("0.0.0.0", std::nullopt, true), "TUTTI_ADDRESS='0.0.0.0'"));
  CHECK(contains(refusal("::", std::nullopt, true), "TUTTI_ADDRESS='::'"));
  CHECK(contains(refusal("10.1.2.3:80", std::nullopt, true), "numeric address"));
  CHECK(contains(refusal("fe80::7%lo", std::nullopt, true), "TUTTI_ADDRESS='fe80::7%lo' is a link-local"));
}

TEST_CASE("tcp address: TUTTI_INTERFACE selects by name") {
  CHECK(tcp::address_of_interface("lo", false).is_loopback());
  CHECK(address_with(nullptr, std::nullopt, false, "lo") == "127.0.0.1");
  CHECK(address_with(nullptr, "192.0.2.1", true, "lo") == "127.0.0.1");
  CHECK(address_with(nullptr, "192.0.2.1", true, "no-such-one,lo") == "127.0.0.1");
  CHECK(address_with("127.0.0.1", std::nullopt, true, "lo") == "127.0.0.1");
  for (const char* part : {"TUTTI_INTERFACE='no-such-one'", "lo (127.0.0.1)"})
    CHECK(contains(refusal(nullptr, std::nullopt, true, "no-such-one"), part));
  for (const char* part : {"TUTTI_INTERFACE=lo", "TUTTI_ADDRESS=10.1.2.3"})
    CHECK(contains(refusal("10.1.2.3", std::nullopt, true, "lo"), part));
  for (const tcp::interface_address& each : tcp::interface_addresses()) {
    if (each.address.is_loopback() || each.address.is_v6()) continue;
    CAPTURE(each.interface);
    CHECK_FALSE(address_with(nullptr, std::nullopt, true, each.interface.c_str()).starts_with("127."));
    CHECK(contains(refusal(nullptr, std::nullopt, false, each.interface.c_str()), "TUTTI_SECRET"));
  }
}

TEST_CASE("tcp address: for another host the listener uses the address of the route to it") {
  const std::string outward = address_with(nullptr, "", true);
  CHECK(outward == tcp::outward_address().to_string());
  CHECK(address_with(nullptr, "", false) == "127.0.0.1");
  CHECK_NOTHROW(tcp::open_listener(outward));
}

TEST_CASE("tcp address: peers get no link-local address, even if the master has one") {
  for (const tcp::interface_address& each : tcp::interface_addresses()) {
    const std::string master = "fe80::7%" + each.interface;
    CAPTURE(master);
    if (bootstrap::source_address_towards(boost::asio::ip::make_address(master)).is_unspecified()) continue;
    CHECK_FALSE(address_with(nullptr, master, true).starts_with("fe80:"));
  }
}

TEST_CASE("tcp address: this host's own name stands for its real address, if it has one") {
  std::array<char, 256> name{};
  REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
  std::string address;
  try {
    address = address_with(nullptr, name.data(), true);
  } catch (const error& e) {
    TUTTI_SKIP(std::string("this host does not know its own name: ") + e.what());
  }
  CHECK(tcp::is_loopback(address + ":1") == tcp::outward_address().is_loopback());
}

TEST_CASE("tcp address: endpoints are formatted and parsed") {
  CHECK(core::endpoint_text(tcp::parse_endpoint("127.0.0.1:4711")) == "127.0.0.1:4711");
  CHECK(core::endpoint_text(tcp::parse_endpoint("[fd00::7]:80")) == "[fd00::7]:80");
  CHECK(tcp::is_loopback("127.0.0.1:1"));
  CHECK(tcp::is_loopback("[::1]:1"));
  CHECK_FALSE(tcp::is_loopback("10.0.0.1:1"));
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:8x",
                          "host:80", ":80", "[::1:80", "::1"})
    CHECK_THROWS_AS(tcp::parse_endpoint(bad), error);
}

TEST_CASE("tcp address: each listener has its own port and is not inherited") {
  const tcp::listener one = tcp::open_listener("127.0.0.1");
  const tcp::listener two = tcp::open_listener("127.0.0.1");
  CHECK(one.endpoint != two.endpoint);
  CHECK(one.endpoint.starts_with("127.0.0.1:"));
  CHECK_NOTHROW(tcp::parse_endpoint(one.endpoint));
}

TEST_CASE("tcp address: an address of another host is an error with the cure") {
  try {
    tcp::open_listener("192.0.2.77");  // reserved for documentation
    FAIL("listened at another host's address");
  } catch (const error& e) {
    CHECK(e.code() == errc::invalid_argument);
    CHECK(contains(e.what(), "TUTTI_ADDRESS"));
  }
}
