// SPDX-License-Identifier: Apache-2.0
// A server that trains: one thread and one io_context for clients and ranks.
//   tutti-run -n 4 only_asio_server 200       200 steps; rank 0 prints its port: nc 127.0.0.1 PORT
#include <tutti/tutti.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace asio = boost::asio;
using asio::ip::tcp;

// Plain Asio: sends each client the current step of the training, until the acceptor is closed.
asio::awaitable<void> serve(tcp::acceptor* acceptor, const int* step) {
  while (acceptor->is_open()) {
    tcp::socket client = co_await acceptor->async_accept(asio::deferred);
    const std::string text = "step " + std::to_string(*step) + "\n";
    co_await asio::async_write(client, asio::buffer(text), asio::deferred);
  }
}

tutti::task<> train(tutti::runtime* rt, tcp::acceptor* acceptor, int steps, int* step) {
  tutti::communicator world = co_await tutti::init(*rt);
  if (world.rank() == 0) std::fprintf(stderr, "clients: port %d\n", acceptor->local_endpoint().port());
  std::vector<double> x(1000, 0), gradient(x.size());  // minimises |x - 1|^2
  for (; *step < steps; ++*step) {
    for (std::size_t i = 0; i < x.size(); ++i) gradient[i] = 2 * (x[i] - 1);
    co_await world.all_reduce(gradient, tutti::avg);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= 0.1 * gradient[i];
    if (*step != steps / 2) continue;
    tcp::socket client(rt->get_executor());  // a client, halfway through
    co_await client.async_connect(acceptor->local_endpoint(), asio::deferred);
    std::string answer(8, ' ');
    co_await asio::async_read(client, asio::buffer(answer), asio::deferred);
    std::printf("rank %d was told: %s\n", world.rank(), answer.c_str());
  }
  acceptor->close();
  if (world.rank() == 0) std::printf("trained for %d steps: x is %.3f\n", steps, x[0]);
}

int main(int argc, char** argv) try {
  asio::io_context context(1);
  tutti::runtime rt(context);
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  int step = 0;
  asio::co_spawn(context, serve(&acceptor, &step), asio::detached);
  rt.run(train(&rt, &acceptor, argc > 1 ? std::atoi(argv[1]) : 200, &step));
} catch (const std::exception& e) {
  std::fprintf(stderr, "only_asio_server: %s\n", e.what());
  return 1;
}
