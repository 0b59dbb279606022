// SPDX-License-Identifier: Apache-2.0
// Asio's own objects inside of tutti::task, beside communication: sockets, resolver, signals, TLS streams.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <string>

using namespace tutti;
using namespace tutti::test;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

task<> echo_once(tcp::acceptor* acceptor) {
  tcp::socket client = co_await acceptor->async_accept(asio::deferred);
  std::array<char, 5> bytes{};
  co_await asio::async_read(client, asio::buffer(bytes), asio::deferred);
  co_await asio::async_write(client, asio::buffer(bytes), asio::deferred);
}
task<> ask(communicator world, unsigned short port, std::string* answer) {
  tcp::resolver resolver(world.get_executor());
  const tcp::resolver::results_type places =
      co_await resolver.async_resolve("127.0.0.1", std::to_string(port), asio::deferred);
  tcp::socket server(world.get_executor());
  co_await server.async_connect(places.begin()->endpoint(), asio::deferred);
  co_await asio::async_write(server, asio::buffer("hello", 5), asio::deferred);
  answer->resize(5);
  co_await asio::async_read(server, asio::buffer(*answer), asio::deferred);
}

task<> sockets(communicator world) {
  tcp::acceptor acceptor(world.get_executor(), tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  std::string answer;
  int x = 1;
  co_await when_all(echo_once(&acceptor), ask(world, acceptor.local_endpoint().port(), &answer),
                    world.all_reduce(x, sum));
  TUTTI_EXPECT(answer == "hello");
  TUTTI_EXPECT(x == world.size());
  // Nobody connects: the deadline ends the accept, which is composed of nothing; and a read, which is
  // composed.
  const failure accepting =
      co_await failure_in(with_timeout(echo_once(&acceptor), std::chrono::milliseconds(2)));
  TUTTI_EXPECT(accepting.code == errc::timed_out);
  tcp::socket silent(world.get_executor());
  co_await silent.async_connect(acceptor.local_endpoint(), asio::deferred);
  const failure reading =
      co_await failure_in(with_timeout(echo_once(&acceptor), std::chrono::milliseconds(2)));
  TUTTI_EXPECT(reading.code == errc::timed_out);
}

task<> signals(communicator world) {
  asio::signal_set interested(world.get_executor(), SIGUSR2);
  const auto arrived = [](asio::signal_set* s) -> task<int> {
    const int number = co_await s->async_wait(asio::deferred);
    co_return number;
  };
  std::raise(SIGUSR2);
  const int number = co_await arrived(&interested);
  TUTTI_EXPECT(number == SIGUSR2);
}

}  // namespace

TEST_CASE("sockets and resolvers in tasks, beside communication; deadlines end them") {
  run_local(2, sockets);
}

TEST_CASE("signals in tasks") { run_local(1, signals); }
