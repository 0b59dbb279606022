// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control_link.hpp"

#include "support/listening_socket.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <stdexcept>
#include <tutti/error.hpp>
#include <tutti/scope.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::bootstrap;
using namespace std::chrono_literals;

namespace {

// A listener, a caller, and their notifications.
struct two_launchers {
  boost::asio::io_context loop;
  std::uint16_t port = 0;
  base::unique_fd socket = test::listening_socket(port);
  std::unique_ptr<control_link> here, there;
  int node = -1;
  std::string failure;
  std::vector<std::string> unauthenticated_peers;
  std::unique_ptr<acceptor> listener;
  control_target to;
  scope calls;

  two_launchers(const std::string& secret, const std::string& other_secret, const tls_identity& tls = nullptr)
      : listener(accept_launchers(
            loop.get_executor(), secret, tls, 10s,
            [this](std::unique_ptr<control_link> link, int n) {
              here = std::move(link);
              node = n;
            },
            [this](const std::string&, const std::string& why) { unauthenticated_peers.push_back(why); })),
        to{"127.0.0.1", port, other_secret, tls, 10s, 3, {}} {}

  void call(std::chrono::milliseconds timeout) {
    to.timeout = timeout;
    calls.spawn(reach(this));
  }
  static task<> reach(two_launchers* two) {
    try {
      two->there = co_await call_launcher(two->loop.get_executor(), two->to);
    } catch (const error& e) {
      two->failure = e.what();
    }
  }

  template <class Condition>
  void run_until(Condition reached) {
    const auto bound = std::chrono::steady_clock::now() + 20s;
    while (!reached()) {
      REQUIRE(std::chrono::steady_clock::now() < bound);
      loop.run_one_until(bound);
    }
  }
};

void check_messages(const tls_identity& tls) {
  two_launchers two("s", "s", tls);
  two.listener->open(std::move(two.socket));
  two.call(10s);
  two.run_until([&] { return two.here && two.there; });
  CHECK(two.node == 3);
  std::vector<std::string> heard_here, heard_there;
  std::string lost_here, lost_there;
  two.here->start({[&](std::string_view m) { heard_here.emplace_back(m); },
                   [&](const std::string& why, bool closed) {
                     lost_here = why;
                     CHECK(closed);
                     two.here->close();
                   }});
  two.there->start({[&](std::string_view m) { heard_there.emplace_back(m); },
                    [&](const std::string& why, bool) { lost_there = why; }});
  const std::string big(1'000'000, 'x');
  two.there->send("one");
  two.there->send(big);
  two.there->send("");
  two.here->send("back");
  two.run_until([&] { return heard_here.size() == 3 && heard_there.size() == 1; });
  CHECK(heard_here == std::vector<std::string>{"one", big, ""});
  CHECK(heard_there == std::vector<std::string>{"back"});
  two.there->send("last");
  two.there->finish();
  two.run_until([&] { return !lost_here.empty() && !lost_there.empty(); });
  CHECK(heard_here.back() == "last");
  CHECK(lost_here.find("closed the connection") != std::string::npos);
  two.here->send("nobody hears this");  // no connection: no effect
}

}  // namespace

TEST_SUITE("bootstrap/control_link") {
  TEST_CASE("messages go both ways, in order, and the end is seen") { check_messages(nullptr); }

#ifdef TUTTI_HAVE_TLS
  TEST_CASE("the same over TLS") {
    TUTTI_NEEDS_TLS();
    check_messages(make_tls_identity());
  }
#endif

  TEST_CASE("the caller waits for a listener that starts later") {
    two_launchers two("s", "s");
    two.call(20s);
    two.loop.run_for(20ms);  // the socket exists, but does not accept yet
    CHECK(two.failure.empty());
    two.listener->open(std::move(two.socket));
    two.run_until([&] { return two.here && two.there; });
  }

  TEST_CASE("no listener: the error has the time") {
    two_launchers two("s", "s");
    two.socket.reset();
    two.call(30ms);
    two.run_until([&] { return !two.failure.empty(); });
    CHECK(two.failure.find("nobody was there within 30 ms") != std::string::npos);
  }

  TEST_CASE("different secrets: both sides get the error") {
    two_launchers two("s", "other");
    two.listener->open(std::move(two.socket));
    two.call(10s);
    two.run_until([&] { return !two.failure.empty() && !two.unauthenticated_peers.empty(); });
    CHECK(two.failure.find("TUTTI_SECRET") != std::string::npos);
    CHECK(two.unauthenticated_peers.front().find("could not prove") != std::string::npos);
    CHECK(!two.here);
  }

  TEST_CASE("an exception of the handler closes the connection") {
    two_launchers two("s", "s");
    two.listener->open(std::move(two.socket));
    two.call(10s);
    two.run_until([&] { return two.here && two.there; });
    std::string lost_here, lost_there;
    two.here->start({[](std::string_view) { throw error(errc::protocol, "nonsense"); },
                     [&](const std::string& why, bool closed) {
                       lost_here = why;
                       CHECK(!closed);
                     }});
    two.there->start({[](std::string_view) {}, [&](const std::string& why, bool) { lost_there = why; }});
    two.there->send("?");
    two.run_until([&] { return !lost_here.empty(); });
    CHECK(lost_here == "nonsense");
    // The other side notices only after the owner has closed the link, because its handler may still run.
    for (int i = 0; i < 10; ++i) two.loop.run_one_for(1ms);
    CHECK(lost_there.empty());
    two.here->close();
    two.run_until([&] { return !lost_there.empty(); });
  }
}
