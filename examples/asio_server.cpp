// SPDX-License-Identifier: Apache-2.0
// One thread and one io_context, owned by the program: training with the other ranks, an HTTP page that shows
// the progress, and an orderly end on SIGTERM or Ctrl-C.
//
//   tutti-run -n 2 asio_server --steps 1000     rank 0 prints where its page is: curl http://127.0.0.1:PORT/
//
// --steps N (default: until a signal), --port P (default 0: any free one), --elements N of the parameters.
#include <tutti/tutti.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

struct settings {
  long steps = -1;
  unsigned short port = 0;
  std::size_t elements = 100000;
};

struct progress {
  long step = 0;
  double loss = 0;
  bool stop = false;  // set by a signal on this rank
};

// ---- plain Asio ----

asio::awaitable<void> answer(tcp::socket client, const progress* now) {
  asio::streambuf request(8192);
  asio::steady_timer patience(client.get_executor(), std::chrono::seconds(5));
  patience.async_wait([&client](boost::system::error_code code) {
    if (!code) client.close();
  });
  try {
    co_await asio::async_read_until(client, request, "\r\n\r\n", asio::use_awaitable);
    const std::string body =
        "{\"step\": " + std::to_string(now->step) + ", \"loss\": " + std::to_string(now->loss) + "}\n";
    const std::string text =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    co_await asio::async_write(client, asio::buffer(text), asio::use_awaitable);
  } catch (const boost::system::system_error&) {
    // A client that disconnects, or sends no request, must not affect the training.
  }
}

asio::awaitable<void> serve(tcp::acceptor* acceptor, const progress* now) {
  for (;;) {
    boost::system::error_code code;
    tcp::socket client = co_await acceptor->async_accept(asio::redirect_error(asio::use_awaitable, code));
    if (code == asio::error::operation_aborted || !acceptor->is_open()) co_return;
    if (code) continue;  // only this client failed
    asio::co_spawn(client.get_executor(), answer(std::move(client), now), asio::detached);
  }
}

// ---- tutti ----

// Minimises |x - target|^2. Each rank sees its own noisy gradient.
tutti::task<> train(tutti::runtime* rt, settings s, progress* now) {
  // Installed before the first message: a signal to the job may follow any output.
  asio::signal_set signals(rt->get_executor(), SIGTERM, SIGINT);
  signals.async_wait([now](boost::system::error_code code, int) {
    if (!code) now->stop = true;
  });
  tutti::communicator world = co_await tutti::init(*rt);

  tcp::acceptor acceptor(rt->get_executor());
  if (world.rank() == 0) {
    acceptor = tcp::acceptor(rt->get_executor(), tcp::endpoint(asio::ip::address_v4::loopback(), s.port));
    asio::co_spawn(rt->get_executor(), serve(&acceptor, now), asio::detached);
    std::printf("status at http://127.0.0.1:%u/\n", static_cast<unsigned>(acceptor.local_endpoint().port()));
    std::fflush(stdout);
  }

  std::vector<double> x(s.elements, 0.0);
  std::vector<double> gradient(s.elements);
  for (bool go_on = s.steps != 0; go_on;) {
    co_await tutti::compute([&] {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double noise = static_cast<double>((i * 31 + static_cast<std::size_t>(now->step) * 17) % 7) - 3;
        gradient[i] = 2 * (x[i] - 1) + 0.1 * noise * (world.rank() % 2 == 0 ? 1 : -1);
      }
    });
    co_await world.all_reduce(gradient, tutti::avg);
    double loss = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] -= 0.01 * gradient[i];
      loss += (x[i] - 1) * (x[i] - 1);
    }
    now->loss = loss / static_cast<double>(x.size());
    ++now->step;
    // A signal may have reached one rank only, but all ranks must end at the same step.
    int ends = now->stop || now->step == s.steps ? 1 : 0;
    co_await world.all_reduce(ends, tutti::max);
    go_on = ends == 0;
  }
  signals.cancel();
  acceptor.close();
  if (world.rank() == 0) std::printf("ended after %ld steps, loss %.6f\n", now->step, now->loss);
}

settings read_options(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--steps" && name != "--port" && name != "--elements")) {
      std::fprintf(stderr, "usage: asio_server [--steps N] [--port P] [--elements N]\n");
      std::exit(2);
    }
    const long value = std::strtol(argv[++i], nullptr, 10);
    if (name == "--steps") s.steps = value;
    if (name == "--port") s.port = static_cast<unsigned short>(value);
    if (name == "--elements") s.elements = static_cast<std::size_t>(value);
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const settings s = read_options(argc, argv);
  try {
    asio::io_context context(1);  // the program's own, shared with all its other handlers
    tutti::runtime rt(context);
    progress now;
    rt.run(train(&rt, s, &now));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "asio_server: %s\n", e.what());
    return 1;
  }
}
