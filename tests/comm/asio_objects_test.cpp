// SPDX-License-Identifier: Apache-2.0
// Asio's own objects inside tutti::task, beside communication: sockets, resolver, signals, TLS streams.
#include "support/asio_tls.hpp"
#include "support/certificates.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <string>
#include <vector>

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
  // No client connects. The deadline ends the accept, a simple operation, and a read, a composed one.
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

#ifdef TUTTI_HAVE_TLS

namespace {

using tls_stream = asio::ssl::stream<tcp::socket>;

// Echoes until the client closes its side, then closes its own.
task<> echo_over_tls(tcp::acceptor* acceptor, asio::ssl::context* own) {
  tcp::socket client = co_await acceptor->async_accept(asio::deferred);
  tls_stream stream(std::move(client), *own);
  co_await stream.async_handshake(asio::ssl::stream_base::server, asio::deferred);
  std::vector<std::byte> bytes(10'000);
  boost::system::error_code end;
  while (!end) {
    const auto read = co_await stream.async_read_some(asio::buffer(bytes), asio::as_tuple(asio::deferred));
    end = std::get<0>(read);
    if (!end) co_await asio::async_write(stream, asio::buffer(bytes, std::get<1>(read)), asio::deferred);
  }
  TUTTI_EXPECT(end == asio::error::eof);  // not truncated: the client has ended the session in order
  co_await stream.async_shutdown(asio::deferred);
}

task<> send_over_tls(tls_stream* stream, const std::vector<std::byte>* sent) {
  co_await asio::async_write(*stream, asio::buffer(*sent), asio::deferred);
}
task<> receive_over_tls(tls_stream* stream, std::vector<std::byte>* received) {
  co_await asio::async_read(*stream, asio::buffer(*received), asio::deferred);
}

task<> ask_over_tls(communicator world, tcp::endpoint server, asio::ssl::context* trusting) {
  tls_stream stream(world.get_executor(), *trusting);
  co_await stream.next_layer().async_connect(server, asio::deferred);
  co_await stream.async_handshake(asio::ssl::stream_base::client, asio::deferred);
  for (const std::size_t bytes : {1UL, 10'000UL, 1'000'000UL}) {
    const std::vector<std::byte> sent = filled(bytes, bytes);
    std::vector<std::byte> received(bytes);
    co_await when_all(send_over_tls(&stream, &sent), receive_over_tls(&stream, &received));
    TUTTI_EXPECT(received == sent);
  }
  co_await stream.async_shutdown(asio::deferred);
}

task<> reduce_often(communicator world) {
  for (int i = 0; i < 200; ++i) {
    int x = i;
    co_await world.all_reduce(x, sum);
    TUTTI_EXPECT(x == i * world.size());
  }
}

struct tls_contexts {
  tls_contexts(const std::string& directory, const std::string& name) : made(directory, name + "-authority") {
    const authority::issued files = made.issue(name, "IP:127.0.0.1");
    server.use_certificate_chain_file(files.certificate);
    server.use_private_key_file(files.key, asio::ssl::context::pem);
    client.load_verify_file(made.file());
    client.set_verify_mode(asio::ssl::verify_peer);
    client.set_verify_callback(asio::ssl::host_name_verification("127.0.0.1"));
  }
  authority made;
  asio::ssl::context server{asio::ssl::context::tls_server};
  asio::ssl::context client{asio::ssl::context::tls_client};
};

task<> tls_streams(communicator world, tls_contexts* ours, tls_contexts* others) {
  tcp::acceptor acceptor(world.get_executor(), tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const tcp::endpoint place = acceptor.local_endpoint();
  co_await with_timeout(when_all(echo_over_tls(&acceptor, &ours->server),
                                 ask_over_tls(world, place, &ours->client), reduce_often(world)),
                        patience);

  // A client that does not trust the server's authority: both handshakes fail.
  failure refused;
  failure refusing;
  co_await with_timeout(when_all(keep_failure(echo_over_tls(&acceptor, &ours->server), &refused),
                                 keep_failure(ask_over_tls(world, place, &others->client), &refusing)),
                        patience);
  TUTTI_EXPECT(refusing.says("certificate verify failed"));
  TUTTI_EXPECT(refused.says("unknown ca"));

  // A client that connects and stays silent: the deadline ends the handshake.
  tcp::socket silent(world.get_executor());
  co_await silent.async_connect(place, asio::deferred);
  const failure waiting = co_await failure_in(
      with_timeout(echo_over_tls(&acceptor, &ours->server), std::chrono::milliseconds(2)));
  TUTTI_EXPECT(waiting.code == errc::timed_out);
}

}  // namespace

TEST_CASE("TLS streams of Asio in tasks, beside collectives; deadlines end them") {
  const scratch_directory files;
  tls_contexts ours(files.path().string(), "ours");
  tls_contexts others(files.path().string(), "others");
  run_local(2,
            [&ours, &others](communicator world) { return tls_streams(std::move(world), &ours, &others); });
}

#else

TEST_CASE("TLS streams of Asio in tasks, beside collectives; deadlines end them") {
  TUTTI_SKIP("built without OpenSSL; for it: apt-get install libssl-dev");
}

#endif
