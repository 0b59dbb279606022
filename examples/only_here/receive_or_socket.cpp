// SPDX-License-Identifier: Apache-2.0
// One wait for a message of a rank and for a client of a socket, whichever comes first.
//   tutti-run -n 2 only_receive_or_socket
#include <tutti/tutti.hpp>

#include <boost/asio/deferred.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstdio>

using boost::asio::ip::tcp;

tutti::task<> serve(tutti::communicator world) {
  tcp::acceptor acceptor(world.get_executor(), {boost::asio::ip::address_v4::loopback(), 0});
  unsigned short port = acceptor.local_endpoint().port();
  co_await world.broadcast(port, 0);
  for (int turn = 0; turn < 2; ++turn) {
    float message = 0;
    auto first =
        co_await tutti::when_any(world.recv(message, 1), acceptor.async_accept(boost::asio::deferred));
    if (first.index() == 0) {
      std::printf("a message of rank 1: %g\n", message);
    } else {
      std::puts("a client of the socket");
    }
    co_await world.send(turn, 1);  // request the next
  }
}

tutti::task<> connect(tutti::communicator world) {
  unsigned short port = 0;
  co_await world.broadcast(port, 0);
  int turn = 0;
  const float message = 7;
  co_await world.send(message, 0);
  co_await world.recv(turn, 0);
  tcp::socket client(world.get_executor());
  const tcp::endpoint server(boost::asio::ip::address_v4::loopback(), port);
  co_await client.async_connect(server, boost::asio::deferred);
  co_await world.recv(turn, 0);
}

tutti::task<> program(tutti::communicator world) {
  unsigned short port = 0;
  if (world.rank() == 0) {
    co_await serve(world);
  } else if (world.rank() == 1) {
    co_await connect(world);
  } else {
    co_await world.broadcast(port, 0);
  }
}

int main() { return tutti::run(program); }
