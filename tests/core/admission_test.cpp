// SPDX-License-Identifier: Apache-2.0
#include "core/admission.hpp"

#include "base/unique_fd.hpp"
#include "support/run_task.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using core::admission;

namespace {

sockaddr_in at(std::uint32_t address, std::uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(address);
  a.sin_port = htons(port);
  return a;
}

// Connections from 127.0.0.1, 127.0.0.2, ...: different hosts from the listener's view.
class callers {
 public:
  explicit callers(boost::asio::io_context& context) : context_(context) {
    const sockaddr_in any = at(INADDR_LOOPBACK, 0);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
    REQUIRE(::listen(listener_.get(), 100) == 0);
  }
  std::unique_ptr<core::stream_socket> call_from(std::uint32_t host) {
    base::unique_fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in from = at((127U << 24) + host, 0);
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
    sockaddr_in to{};
    socklen_t length = sizeof to;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&to), &length);
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    far_.push_back(std::move(fd));
    const int accepted = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    REQUIRE(accepted >= 0);
    return std::make_unique<core::stream_socket>(
        context_, boost::asio::generic::stream_protocol(AF_INET, IPPROTO_TCP), accepted);
  }

 private:
  boost::asio::io_context& context_;
  base::unique_fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<base::unique_fd> far_;
};

struct guest {
  guest(admission& a, std::unique_ptr<core::stream_socket> s) : socket(std::move(s)), pending(a, *socket) {}
  std::unique_ptr<core::stream_socket> socket;
  admission::pending_connection pending;
};

task<> read_once(core::stream_socket& socket, errc* code) {
  std::array<std::uint8_t, 1> byte{};
  try {
    co_await core::read_some(socket, byte, core::deadline_after(20s));
  } catch (const error& e) {
    *code = static_cast<errc>(e.code().value());
  }
}

}  // namespace

TEST_CASE("admission: the number of places is fixed, and a peer that leaves frees its place") {
  boost::asio::io_context context;
  callers from(context);
  admission::limits few;
  few.places = 3;
  few.courtesy = 1h;
  admission places(context.get_executor(), few);
  std::vector<std::unique_ptr<guest>> guests;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(places.has_room());
    guests.push_back(std::make_unique<guest>(places, from.call_from(1)));
  }
  CHECK_FALSE(places.has_room());
  guests.erase(guests.begin());
  CHECK(places.has_room());
  test::run_task(context, places.wait_for_room());  // at once: it was notified
  CHECK(places.present() == 2);
  CHECK(places.turned_out() == 0);
}

TEST_CASE("admission: the source with most connections loses its oldest, whose owner is told") {
  boost::asio::io_context context;
  callers from(context);
  admission::limits few;
  few.places = 4;
  few.courtesy = 0ms;
  admission places(context.get_executor(), few);
  std::vector<std::unique_ptr<guest>> guests;
  for (const std::uint32_t host : {2U, 1U, 1U, 3U})
    guests.push_back(std::make_unique<guest>(places, from.call_from(host)));
  errc code = errc::success;
  core::running_task waiting;
  waiting.start(read_once(*guests[1]->socket, &code));
  CHECK(places.has_room());
  CHECK(places.present() == 3);
  CHECK(guests[1]->pending.turned_out());
  for (const std::size_t i : {0UL, 2UL, 3UL}) CHECK_FALSE(guests[i]->pending.turned_out());
  test::run_until(context, [&] { return code != errc::success; });
  CHECK(code == errc::cancelled);
  guests.erase(guests.begin() + 1);  // closes no further connection
  CHECK(places.present() == 3);
  CHECK(places.turned_out() == 1);
}

TEST_CASE("admission: no connection is closed before the grace time is over") {
  boost::asio::io_context context;
  callers from(context);
  admission::limits few;
  few.places = 1;
  few.courtesy = 100ms;
  admission places(context.get_executor(), few);
  const auto begin = core::clock::now();
  guest only(places, from.call_from(1));
  while (!places.has_room()) test::run_task(context, places.wait_for_room());
  CHECK(core::clock::now() - begin >= 100ms);
  CHECK(only.pending.turned_out());
  CHECK(only.pending.deadline() >= begin + 2s);
}
