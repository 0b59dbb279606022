// SPDX-License-Identifier: Apache-2.0
// tcp_store and its server, and that unauthenticated peers cannot affect them.
#include "base/fields.hpp"
#include "base/unique_fd.hpp"
#include "bootstrap/store_conformance.hpp"
#include "core/handshake.hpp"
#include "core/wakeup.hpp"
#include "support/child.hpp"
#include "support/run_task.hpp"
#include "support/skip.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <tutti/store.hpp>
#include <vector>

using namespace tutti;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using test::failure;
using test::failure_of;
using test::run_task;

namespace {

const std::string secret = "a secret for tests";

std::unique_ptr<tcp_store_server> serve(boost::asio::io_context& context, std::string with_secret = secret) {
  return run_task(context,
                  tcp_store_server::listen(context.get_executor(), "127.0.0.1", 0, with_secret, 20s));
}

std::unique_ptr<tcp_store> join(boost::asio::io_context& context, std::uint16_t port,
                                std::string with_secret = secret, std::chrono::milliseconds timeout = 20s) {
  return run_task(context,
                  tcp_store::connect(context.get_executor(), "127.0.0.1", port, with_secret, 1, timeout));
}

// A server on its own thread and io_context, until it is destroyed.
class served {
 public:
  served() : server_(serve(context_)), port(server_->port()), thread_([this] { context_.run(); }) {}
  ~served() {
    context_.stop();
    thread_.join();
    server_.reset();
  }

 private:
  boost::asio::io_context context_;
  std::unique_ptr<tcp_store_server> server_;

 public:
  const std::uint16_t port;

 private:
  std::thread thread_;
};

// An unauthenticated peer: a plain blocking socket.
class unauthenticated_peer {
 public:
  explicit unauthenticated_peer(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
      throw std::runtime_error("the unauthenticated peer cannot connect");
  }
  void say(const std::string& text) {
    static_cast<void>(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  void half_close() { ::shutdown(fd_.get(), SHUT_WR); }
  // Returns true when the other side has closed. Meanwhile runs `context`, if given.
  bool dropped(boost::asio::io_context* context = nullptr) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    char bytes[256];
    while (std::chrono::steady_clock::now() < end) {
      if (context != nullptr) {
        context->restart();
        context->run_one_for(10ms);
      } else {
        pollfd p{fd_.get(), POLLIN, 0};
        ::poll(&p, 1, 1000);
      }
      const ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }
  void close() { fd_.reset(); }

 private:
  base::unique_fd fd_;
};

// A socket with its own port, listening or not.
class reserved {
 public:
  reserved() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &length) != 0)
      throw std::runtime_error("no port for the test");
    port = ntohs(at.sin_port);
  }
  base::unique_fd fd;
  std::uint16_t port = 0;
};

task<> connect_into(boost::asio::any_io_executor executor, std::uint16_t port,
                    std::unique_ptr<tcp_store>* into) {
  std::unique_ptr<tcp_store> made = co_await tcp_store::connect(executor, "127.0.0.1", port, secret, 1, 50s);
  *into = std::move(made);
}

}  // namespace

TEST_CASE("tcp_store conforms to the interface of stores, with everything on one loop") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto a = join(context, server->port());
  const auto b = join(context, server->port());
  test::check_store(context, *a, *b);
}

TEST_CASE("the server's own handle and a client see one store") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto a = server->local();
  const auto b = join(context, server->port());
  // Both are named by the server's address, which errors on either side show.
  CHECK(a->name() == b->name());
  test::check_store(context, *a, *b);
}

TEST_CASE("prefix_store works on tcp_store") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto base = join(context, server->port());
  prefix_store a(*base, "p"), b(*base, "p");
  test::check_store(context, a, b);
}

TEST_CASE("many ranks on threads of their own use one server") {
  served server;
  const auto failures = test::run_threads(8, [&](int rank) {
    boost::asio::io_context context;
    const auto mine = join(context, server.port);
    for (int i = 0; i < 50; ++i) run_task(context, mine->add("counter", 1));
    run_task(context, mine->set("rank/" + std::to_string(rank), "here"));
    for (int other = 0; other < 8; ++other) run_task(context, mine->wait("rank/" + std::to_string(other)));
  });
  for (const failure& f : failures) CHECK_MESSAGE(f.code == errc::success, f.text);
  boost::asio::io_context context;
  const auto mine = join(context, server.port);
  CHECK(run_task(context, mine->get("counter")) == "400");
}

TEST_CASE("a client that comes before its server waits for it") {
  boost::asio::io_context context;
  reserved place;
  std::unique_ptr<tcp_store> client;
  core::background_tasks tasks;
  tasks.start(connect_into(context.get_executor(), place.port, &client));
  context.poll();  // refused: the socket does not listen
  CHECK(client == nullptr);
  SUBCASE("with its socket") {
    REQUIRE(::listen(place.fd.get(), 10) == 0);
    const auto server = tcp_store_server::adopt(context.get_executor(), place.fd.release(), secret);
    CHECK(server->port() == place.port);
    test::run_until(context, [&] { return client != nullptr; });
    run_task(context, client->set("k", "v"));
    client.reset();
  }
  SUBCASE("behind the launcher's socket, which accepts connections before there is a server") {
    REQUIRE(::listen(place.fd.get(), 10) == 0);
    unauthenticated_peer other(place.port);  // uses the backlog
    context.poll();
    const auto server = tcp_store_server::adopt(context.get_executor(), place.fd.release(), secret);
    test::run_until(context, [&] { return client != nullptr; });
    run_task(context, client->set("k", "v"));
    client.reset();
  }
}

TEST_CASE("a missing server is an error with the address that was tried") {
  boost::asio::io_context context;
  reserved place;
  // Long enough for one attempt where other programs have the cores.
  const failure refused = failure_of([&] { join(context, place.port, secret, 500ms); });
  CHECK(refused.code == errc::join_failed);
  CHECK_MESSAGE(refused.says("127.0.0.1:" + std::to_string(place.port)), refused.text);
  CHECK(refused.says("rank 0"));
  CHECK(refused.says("500 ms"));
  CHECK(refused.says("refused"));
  REQUIRE(::listen(place.fd.get(), 10) == 0);
  const failure silent = failure_of([&] { join(context, place.port, secret, 50ms); });
  CHECK(silent.code == errc::join_failed);
}

TEST_CASE("no client waits at an address where a server has listened and ended") {
  boost::asio::io_context context;
  const auto at = [&context](std::uint16_t port) {
    run_task(context,
             tcp_store::connect_to_listening(context.get_executor(), "127.0.0.1", port, secret, 1, 20s));
  };
  const served there;
  CHECK_NOTHROW(at(there.port));
  const reserved gone;
  const auto start = std::chrono::steady_clock::now();
  const failure f = failure_of([&] { at(gone.port); });
  CHECK(f.code == errc::join_failed);
  CHECK_MESSAGE(
      f.says("rank 0, which served the store at 127.0.0.1:" + std::to_string(gone.port) + ", has ended"),
      f.text);
  CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("operations when the server ends") {
  boost::asio::io_context context;
  auto server = serve(context);
  const auto client = join(context, server->port());
  test::waited w;
  core::background_tasks tasks;
  tasks.start(test::get_into(*client, "k", 50s, &w));
  run_task(context, client->set("other", "x"));
  SUBCASE("pending and later operations fail with the reason") {
    server.reset();
    test::run_until(context, [&] { return w.done; });
    CHECK(w.how.code == errc::peer_failed);
    CHECK_MESSAGE(w.how.says("the store has gone"), w.how.text);
    const failure f = failure_of([&] { run_task(context, client->set("k", "v")); });
    CHECK(f.code == errc::peer_failed);
  }
  SUBCASE("drain waits for answers that clients wait for") {
    bool drained = false;
    const auto end = [](tcp_store_server& s, bool* done) -> task<> {
      co_await s.drain(50s);
      *done = true;
    };
    tasks.start(end(*server, &drained));
    context.poll();
    CHECK_FALSE(drained);
    run_task(context, server->local()->set("k", "v"));
    test::run_until(context, [&] { return w.done; });
    CHECK(w.value == "v");
    CHECK_FALSE(drained);
  }
  SUBCASE("drain ends in time when a client stays") {
    run_task(context, server->drain(20ms));
    test::run_until(context, [&] { return w.done; });
    CHECK(w.how.code == errc::peer_failed);
  }
}

TEST_CASE("many long values at once, in both directions") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto store = join(context, server->port());
  const std::string value(store::largest_value - 20, 'x');
  constexpr std::size_t several = 8;
  std::vector<failure> set(several);
  std::vector<test::waited> got(several);
  core::background_tasks tasks;
  for (std::size_t i = 0; i < several; ++i)
    tasks.start(test::keep_failure(store->set("k" + std::to_string(i), value), &set[i]));
  run_task(context, store->wait("k7", 50s));
  for (std::size_t i = 0; i < several; ++i)
    tasks.start(test::get_into(*store, "k" + std::to_string(i), 50s, &got[i]));
  test::run_until(context, [&] { return std::ranges::all_of(got, &test::waited::done); });
  for (std::size_t i = 0; i < several; ++i) {
    CHECK_MESSAGE(!set[i].code, set[i].text);
    CHECK_MESSAGE(got[i].value == value, got[i].how.text);
  }
}

TEST_CASE("a long value that many gets of one client wait for") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto store = join(context, server->port()), other = join(context, server->port());
  const std::string value(store::largest_value - 20, 'x');
  std::vector<test::waited> got(6);
  core::background_tasks tasks;
  for (test::waited& g : got) tasks.start(test::get_into(*store, "key", 50s, &g));
  run_task(context, store->count());  // the server has the others before
  run_task(context, other->set("key", value));
  test::run_until(context, [&] { return std::ranges::all_of(got, &test::waited::done); });
  for (const test::waited& g : got) CHECK_MESSAGE(g.value == value, g.how.text);
}

TEST_CASE("drain ends when the last client leaves") {
  boost::asio::io_context context;
  const auto server = serve(context);
  auto first = join(context, server->port());
  auto second = join(context, server->port());
  run_task(context, first->set("k", "v"));
  run_task(context, second->set("k", "v"));
  unauthenticated_peer silent(server->port());  // does not count
  first.reset();
  second.reset();
  run_task(context, server->drain(50s), std::chrono::seconds(40));
}

TEST_CASE("clients may leave and connect again") {
  boost::asio::io_context context;
  const auto server = serve(context);
  for (int i = 0; i < 30; ++i) {
    const auto client = join(context, server->port());
    CHECK(run_task(context, client->add("n", 1)) == i + 1);
  }
}

TEST_CASE("without the secret no client is admitted") {
  boost::asio::io_context context;
  const auto server = serve(context);
  for (const std::string wrong : {"", "another secret"}) {
    const failure f = failure_of([&] { join(context, server->port(), wrong); });
    CHECK(f.code == errc::unauthorized);
    CHECK_MESSAGE(f.says("TUTTI_SECRET"), f.text);
  }
  const auto client = join(context, server->port());
  run_task(context, client->set("k", "v"));
}

TEST_CASE("without any secret the store stays on loopback") {
  boost::asio::io_context context;
  const auto executor = context.get_executor();
  const auto server = serve(context, "");
  const auto client = join(context, server->port(), "");
  run_task(context, client->set("k", "v"));

  for (const std::string host : {"0.0.0.0", "192.0.2.1", "::", "::ffff:192.0.2.1"}) {
    failure f = failure_of([&] { run_task(context, tcp_store_server::listen(executor, host, 0, "", 5s)); });
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says("TUTTI_SECRET"), f.text);
    f = failure_of([&] { run_task(context, tcp_store::connect(executor, host, 1, "", 1, 5s)); });
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says("openssl rand"), f.text);
  }
  const base::unique_fd everywhere(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::listen(everywhere.get(), 1) == 0);
  const failure f = failure_of(
      [&] { tcp_store_server::adopt(executor, ::fcntl(everywhere.get(), F_DUPFD_CLOEXEC, 0), ""); });
  CHECK(f.code == errc::invalid_argument);
}

TEST_CASE("localhost works with all its addresses") {
  boost::asio::io_context context;
  const auto executor = context.get_executor();
  const auto server = run_task(context, tcp_store_server::listen(executor, "localhost", 0, secret, 20s));
  const auto client =
      run_task(context, tcp_store::connect(executor, "localhost", server->port(), secret, 1, 20s));
  run_task(context, client->set("k", "v"));
}

TEST_CASE("IPv6 addresses work") {
  const base::unique_fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  if (!probe || ::bind(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    TUTTI_SKIP("this machine has no IPv6");
  boost::asio::io_context context;
  const auto executor = context.get_executor();
  const auto server = run_task(context, tcp_store_server::listen(executor, "::1", 0, secret, 20s));
  const auto client = run_task(context, tcp_store::connect(executor, "::1", server->port(), secret, 1, 20s));
  run_task(context, client->set("k", "v"));
  CHECK(client->name() == "tcp_store at [::1]:" + std::to_string(server->port()));
}

TEST_CASE("a port in use is an error with the port and the cure") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const failure f = failure_of([&] {
    run_task(context,
             tcp_store_server::listen(context.get_executor(), "127.0.0.1", server->port(), secret, 20s));
  });
  CHECK(f.code == errc::system);
  CHECK_MESSAGE(f.says("port " + std::to_string(server->port()) + " is in use"), f.text);
  CHECK(f.says("MASTER_PORT"));
}

TEST_CASE("addresses of other hosts and unknown names") {
  boost::asio::io_context context;
  const auto executor = context.get_executor();
  failure f =
      failure_of([&] { run_task(context, tcp_store_server::listen(executor, "192.0.2.1", 0, secret, 20s)); });
  CHECK(f.code == errc::invalid_argument);
  CHECK_MESSAGE(f.says("MASTER_ADDR"), f.text);
  f = failure_of([&] { run_task(context, tcp_store_server::listen(executor, "no host", 0, secret, 20s)); });
  CHECK(f.code == errc::invalid_argument);
  CHECK_MESSAGE(f.says("no host"), f.text);
}

TEST_CASE("adopt refuses a socket that does not listen, and does not change it") {
  boost::asio::io_context context;
  const base::unique_fd other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const int fd : {other.get(), -1, 1000000}) {
    const failure f = failure_of([&] { tcp_store_server::adopt(context.get_executor(), fd, secret); });
    CHECK(f.code == errc::invalid_argument);
    CHECK_MESSAGE(f.says("TUTTI_STORE_FD"), f.text);
  }
  CHECK(::fcntl(other.get(), F_GETFD) >= 0);
}

TEST_CASE("programs that are started do not inherit an adopted socket") {
  boost::asio::io_context context;
  reserved place;
  REQUIRE(::listen(place.fd.get(), 10) == 0);
  REQUIRE(::fcntl(place.fd.get(), F_SETFD, 0) == 0);
  const int fd = place.fd.release();
  const auto server = tcp_store_server::adopt(context.get_executor(), fd, secret);
  CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("unauthenticated peers are dropped and have no effect") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto member = join(context, server->port());
  test::waited w;
  core::background_tasks tasks;
  tasks.start(test::get_into(*member, "k", 50s, &w));

  unauthenticated_peer http(server->port()), noise(server->port()), gone(server->port()),
      half(server->port());
  http.say("GET / HTTP/1.1\r\nHost: example\r\n\r\n");
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes.push_back(static_cast<char>(i * 37));
  noise.say(bytes);
  gone.close();
  half.half_close();
  CHECK(http.dropped(&context));
  CHECK(noise.dropped(&context));
  CHECK(half.dropped(&context));

  const auto late = join(context, server->port());
  run_task(context, late->set("k", "v"));
  test::run_until(context, [&] { return w.done; });
  CHECK(w.value == "v");
}

TEST_CASE("silent unauthenticated peers are dropped after a while, and use only a limited number of places") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto early = join(context, server->port());
  // More than may be between accept and proof.
  std::vector<std::unique_ptr<unauthenticated_peer>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<unauthenticated_peer>(server->port()));
  context.restart();
  context.poll();
  run_task(context, early->set("k", "v"));  // authenticated clients are not affected
  // The oldest are closed first.
  const auto begin = std::chrono::steady_clock::now();
  const auto client = join(context, server->port());
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  run_task(context, client->set("k", "v"));
  for (const auto& s : crowd) CHECK(s->dropped(&context));
}

namespace {

task<> be_admitted(core::stream_socket& socket, std::uint16_t port) {
  const core::time_point deadline = core::deadline_after(20s);
  const tcp::endpoint at(boost::asio::ip::address_v4::loopback(), port);
  core::stream_socket connected = co_await core::connect(socket.get_executor(), at, deadline);
  core::identity mine;
  mine.rank = 2;
  co_await core::greet(connected, secret, mine, 0, deadline);
  socket = std::move(connected);
}

// Completes when the server has closed the connection. Throws if that takes too long.
task<> see_end(core::stream_socket& socket) {
  std::array<std::uint8_t, 1024> bytes{};
  bool open = true;
  while (open) {
    try {
      const std::size_t got = co_await core::read_some(socket, bytes, core::deadline_after(20s));
      open = got > 0;
    } catch (const error& e) {
      if (e.code() != errc::peer_failed) throw;
      open = false;
    }
  }
}

}  // namespace

TEST_CASE("only the client that sends garbage is dropped") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto member = join(context, server->port());
  const std::vector<std::vector<std::uint8_t>> nonsense = {
      {0xff, 0xff, 0xff, 0xff, 1, 2, 3},  // too long
      {0, 0, 0, 0},                       // too short
      {4, 0, 0, 0, 1, 2, 3, 4},           // truncated
      {29, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
  for (const auto& bytes : nonsense) {
    core::stream_socket socket(context);
    run_task(context, be_admitted(socket, server->port()));
    run_task(context, core::write_all(socket, bytes, core::deadline_after(20s)));
    run_task(context, see_end(socket));
  }
  run_task(context, member->set("k", "v"));
}

TEST_CASE("a client with pending waits may leave") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto other = join(context, server->port());
  {
    const auto member = join(context, server->port());
    core::background_tasks tasks;
    std::vector<test::waited> w(50);
    for (test::waited& each : w) tasks.start(test::get_into(*member, "k", 50s, &each));
    run_task(context, member->set("other", "x"));
    tasks.clear();
  }
  run_task(context, other->set("k", "v"));
  CHECK(run_task(context, other->get("k")) == "v");
  run_task(context, other->erase("k"));
}

TEST_CASE("a client that asks without a pause leaves the server's loop its turns") {
  boost::asio::io_context context;
  const auto server = serve(context);
  core::stream_socket client(context);
  run_task(context, be_admitted(client, server->port()));
  const std::string one =
      base::to_bytes(store_request{.number = 1, .operation = store_operation::erase, .key = "k"});
  const auto length = static_cast<std::uint32_t>(one.size());
  std::string many;
  for (int i = 0; i < 1000; ++i)
    many.append(reinterpret_cast<const char*>(&length), sizeof length).append(one);
  // As many as the kernel holds: some on the client's side.
  for (ssize_t sent = 1; sent > 0;) {
    sent = ::send(client.native_handle(), many.data(), many.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) std::rotate(many.begin(), many.begin() + sent, many.end());
  }
  bool fired = false;
  boost::asio::steady_timer timer(context, 1ms);
  timer.async_wait([&](boost::system::error_code) { fired = true; });
  test::run_until(context, [&] { return fired; });
  int left = 0;
  REQUIRE(::ioctl(client.native_handle(), SIOCOUTQ, &left) == 0);
  CHECK(left > 0);
}

TEST_CASE("the requests of one client that wait are limited, by number and by bytes") {
  boost::asio::io_context context;
  const auto server = serve(context);
  const auto client = join(context, server->port()), other = join(context, server->port());
  const auto waits_for = [&](std::size_t number, std::size_t key_bytes) {
    std::vector<test::waited> all(number);
    core::background_tasks tasks;
    for (test::waited& w : all) tasks.start(test::get_into(*client, std::string(key_bytes, 'k'), 50s, &w));
    test::run_until(context, [&] { return all.back().done; });
    CHECK(all.back().how.code == errc::resources);
    CHECK_MESSAGE(all.back().how.says("outstanding"), all.back().how.text.substr(0, 1000));
    CHECK(std::ranges::count_if(all, &test::waited::done) == 1);
    run_task(context, other->set(std::string(key_bytes, 'k'), "v"));
    test::run_until(context, [&] { return std::ranges::all_of(all, &test::waited::done); });
    CHECK(std::ranges::count(all, "v", &test::waited::value) == static_cast<std::ptrdiff_t>(number) - 1);
  };
  waits_for(4097, 1);
  waits_for(5, std::size_t{15} << 20);
}

namespace {

class exhausted_store final : public store {
 public:
  std::string name() const override { return "exhausted_store"; }

 private:
  task<store_answer> carry_out(store_request what) override {
    if (what.key == "k") throw std::bad_alloc();
    co_return store_answer();
  }
};

}  // namespace

TEST_CASE("a request for which the server has no memory fails, and nothing else does") {
  boost::asio::io_context context;
  reserved place;
  REQUIRE(::listen(place.fd.get(), 10) == 0);
  const auto server = tcp_store_server::adopt(context.get_executor(), place.fd.release(), secret, nullptr,
                                              std::make_unique<exhausted_store>());
  const auto client = join(context, server->port());
  const failure f = failure_of([&] { run_task(context, client->set("k", "v")); });
  CHECK(f.code == errc::resources);
  CHECK_MESSAGE(f.says("no memory"), f.text);
  run_task(context, client->set("another", "v"));
}

TEST_CASE("a client notices that the host of the server has gone while nothing is sent") {
  const served server;
  boost::asio::io_context context;
  const auto client = join(context, server.port);
  int watched = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in to{};
    int seconds = 0;
    socklen_t length = sizeof to, size = sizeof seconds;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&to), &length) != 0 ||
        to.sin_port != htons(server.port))
      continue;
    ::getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, &size);
    if (seconds == 5) ++watched;  // a quarter of the time for connecting
  }
  CHECK(watched == 1);
}

TEST_CASE("clients leave the server descriptors for all else, and those refused try again") {
  reserved place;
  REQUIRE(::listen(place.fd.get(), 100) == 0);
  const test::child serving([&](const std::function<void()>&) {
    constexpr rlimit files{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &files);
    boost::asio::io_context context;
    const auto server = tcp_store_server::adopt(context.get_executor(), ::dup(place.fd.get()), secret);
    context.run();
    return 0;
  });
  boost::asio::io_context context;
  std::vector<std::unique_ptr<tcp_store>> all;
  for (int i = 0; i < 47; ++i) all.push_back(join(context, place.port));
  const auto refused = [&] {
    return failure_of([&] { join(context, place.port, secret, 300ms); }).code == errc::join_failed;
  };
  bool counted = false;
  for (int i = 0; i < 5 && !counted; ++i) {
    const unauthenticated_peer silent(place.port);  // has 2 s to prove itself
    counted = refused();
  }
  CHECK(counted);
  all.push_back(join(context, place.port));
  CHECK(refused());
  std::unique_ptr<tcp_store> late;
  core::background_tasks tasks;
  tasks.start(connect_into(context.get_executor(), place.port, &late));
  context.restart();
  context.run_for(20ms);
  CHECK(late == nullptr);
  all.pop_back();
  test::run_until(context, [&] { return late != nullptr; });
  run_task(context, late->set("k", "v"));
}

TEST_CASE("a store without a secret is warned of") {
  const auto said_with = [](const std::string& its_secret) {
    boost::asio::io_context context;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const base::unique_fd reader(ends[0]), terminal(::dup(STDERR_FILENO));
    ::dup2(base::unique_fd(ends[1]).get(), STDERR_FILENO);
    const auto listening = serve(context, its_secret);
    reserved place;
    ::listen(place.fd.get(), 1);
    tcp_store_server::adopt(context.get_executor(), place.fd.release(), its_secret);
    ::dup2(terminal.get(), STDERR_FILENO);
    std::string said(4000, ' ');
    said.resize(
        static_cast<std::size_t>(std::max<ssize_t>(0, ::read(reader.get(), said.data(), said.size()))));
    return said;
  };
  const std::string said = said_with("");
  CHECK_MESSAGE(said.find("served without a secret") != said.rfind("served without a secret"), said);
  CHECK(said_with(secret) == "");
}
