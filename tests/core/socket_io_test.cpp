// SPDX-License-Identifier: Apache-2.0
#include "core/socket_io.hpp"

#include "base/unique_fd.hpp"
#include "core/running_task.hpp"
#include "core/wakeup.hpp"
#include "support/run_task.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using local = boost::asio::local::stream_protocol;
using test::failure_of;
using test::run_task;

namespace {

using bytes = std::vector<std::uint8_t>;
core::time_point soon() { return core::deadline_after(20s); }

struct pair_of_sockets {
  explicit pair_of_sockets(boost::asio::io_context& context) : near(context), far(context) {
    local::socket a(context), b(context);
    boost::asio::local::connect_pair(a, b);
    near = core::stream_socket(std::move(a));
    far = core::stream_socket(std::move(b));
  }
  core::stream_socket near, far;
};

bytes pattern(std::size_t size) {
  bytes b(size);
  for (std::size_t i = 0; i < size; ++i) b[i] = static_cast<std::uint8_t>(i * 31 + i / 251);
  return b;
}

}  // namespace

TEST_CASE("data beyond the kernel's buffers arrive whole, whichever side is slow") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  const bytes sent = pattern(5'000'000);
  bytes got(sent.size());
  core::background_tasks tasks;
  tasks.start(core::write_all(sockets.near, sent, soon()));  // waits for space
  run_task(context, core::read_exactly(sockets.far, got, soon()));
  CHECK(got == sent);

  bytes back(sent.size());
  core::background_tasks others;
  others.start(core::read_exactly(sockets.near, back, soon()));  // waits for bytes
  run_task(context, core::write_all(sockets.far, sent, soon()));
  test::run_until(context, [&] { return back.back() == sent.back(); });
  CHECK(back == sent);
}

TEST_CASE("the end of the stream: 0 bytes for read_some, an error for read_exactly") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  run_task(context, core::write_all(sockets.near, pattern(3), soon()));
  sockets.near.close();
  bytes got(10);
  const test::failure f =
      failure_of([&] { run_task(context, core::read_exactly(sockets.far, got, soon())); });
  CHECK(f.code == errc::peer_failed);
  CHECK_MESSAGE(f.says("3 of 10 bytes"), f.text);
  CHECK(run_task(context, core::read_some(sockets.far, got, soon())) == 0);
  const test::failure w = failure_of([&] {
    run_task(context, core::write_all(sockets.far, got, soon()));
    run_task(context, core::write_all(sockets.far, got, soon()));
  });
  CHECK(w.code == errc::peer_failed);
}

TEST_CASE("deadlines, also with bytes in flight") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  bytes got(10);
  run_task(context, core::write_all(sockets.near, pattern(3), soon()));
  CHECK(failure_of([&] {
          run_task(context, core::read_exactly(sockets.far, got, core::deadline_after(20ms)));
        }).code == errc::timed_out);
  const bytes much(10'000'000);
  CHECK(failure_of([&] {
          run_task(context, core::write_all(sockets.near, much, core::deadline_after(20ms)));
        }).code == errc::timed_out);
  // Bytes that have arrived are returned even after the deadline.
  CHECK(run_task(context, core::read_some(sockets.far, got, core::clock::now() - 1s)) > 0);
}

TEST_CASE("a dropped read writes no more bytes") {
  boost::asio::io_context context;
  pair_of_sockets sockets(context);
  {
    bytes gone(100);
    core::background_tasks tasks;
    tasks.start(core::read_exactly(sockets.far, gone, soon()));
    context.poll();
  }
  run_task(context, core::write_all(sockets.near, pattern(100), soon()));
  context.restart();
  context.poll();
  bytes got(100);
  run_task(context, core::read_exactly(sockets.far, got, soon()));
  CHECK(got == pattern(100));
}

TEST_CASE("connecting") {
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const core::stream_endpoint at = acceptor.local_endpoint();
  SUBCASE("gives a usable socket that no child inherits") {
    core::stream_socket near = run_task(context, core::connect(context.get_executor(), at, soon()));
    core::stream_socket far(context);
    acceptor.accept(far);
    run_task(context, core::write_all(near, pattern(8), soon()));
    bytes got(8);
    run_task(context, core::read_exactly(far, got, soon()));
    CHECK(got == pattern(8));
    CHECK((::fcntl(near.native_handle(), F_GETFD) & FD_CLOEXEC) != 0);
    int on = 0;
    socklen_t length = sizeof on;
    CHECK(::getsockopt(near.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, &length) == 0);
    CHECK(on != 0);
    CHECK(core::peer_text(near) == core::endpoint_text(at));
  }
  SUBCASE("to a port without a listener") {
    acceptor.close();
    const test::failure f =
        failure_of([&] { run_task(context, core::connect(context.get_executor(), at, soon())); });
    CHECK(f.code == errc::peer_failed);
    CHECK_MESSAGE(f.says(core::endpoint_text(at)), f.text);
    CHECK_MESSAGE(f.says("refused"), f.text);
  }
  SUBCASE("to a host that does not answer") {
    // A listener with a full backlog does not answer either.
    base::unique_fd full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(full.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(full.get(), 0) == 0);
    REQUIRE(::getsockname(full.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    const core::stream_endpoint busy(&address, sizeof address);
    std::vector<core::stream_socket> held;
    test::failure f;
    for (int i = 0; i < 10 && !f.code; ++i)
      f = failure_of([&] {
        held.push_back(
            run_task(context, core::connect(context.get_executor(), busy, core::deadline_after(50ms))));
      });
    CHECK_MESSAGE(f.code == errc::timed_out, f.text);
    CHECK_MESSAGE(f.says(core::endpoint_text(busy)), f.text);
  }
}

TEST_CASE("a socket that is connected to itself") {
  boost::asio::io_context context;
  tcp::socket one(context, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  one.connect(one.local_endpoint());
  CHECK(core::is_connected_to_itself(core::stream_socket(std::move(one))));

  tcp::acceptor listener(context, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  core::stream_socket other =
      run_task(context, core::connect(context.get_executor(), listener.local_endpoint(), soon()));
  CHECK_FALSE(core::is_connected_to_itself(other));
}

TEST_CASE("endpoints as text") {
  using boost::asio::ip::make_address;
  CHECK(core::endpoint_text(tcp::endpoint(make_address("10.1.2.3"), 80)) == "10.1.2.3:80");
  CHECK(core::endpoint_text(tcp::endpoint(make_address("fe80::1"), 80)) == "[fe80::1]:80");
  CHECK(core::endpoint_text(local::endpoint("/run/x")) == "/run/x");
  CHECK(core::endpoint_text(local::endpoint(std::string("\0name", 5))) == "@name");
  CHECK(core::endpoint_text(local::endpoint()) == "an unnamed local socket");
  boost::asio::io_context context;
  CHECK(core::peer_text(core::stream_socket(context)) == "the other side");
}
