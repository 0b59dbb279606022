// SPDX-License-Identifier: Apache-2.0
#include "launch/store_socket.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "bootstrap/address.hpp"
#include "launched.hpp"

using namespace tutti::launch;
using namespace std::chrono_literals;

namespace {

int listening(int fd) {
  int yes = 0;
  socklen_t length = sizeof yes;
  ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &length);
  return yes;
}

}  // namespace

TEST_SUITE("launch/store_socket") {
  TEST_CASE("on one node: a free port of the loopback interface") {
    const tutti::base::unique_fd store = open_store_socket(std::nullopt, 0ms);
    CHECK(listening(store.get()) == 1);
    CHECK((::fcntl(store.get(), F_GETFD) & FD_CLOEXEC) != 0);
    sockaddr_in address{};
    socklen_t length = sizeof address;
    REQUIRE(::getsockname(store.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
    CHECK(address.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    CHECK(ntohs(address.sin_port) == port_of(store));
  }

  TEST_CASE("at a given address; errors name a port in use and a foreign address") {
    int port = 0;
    {
      const tutti::base::unique_fd probe = open_store_socket(std::nullopt, 0ms);
      port = port_of(probe);
      CHECK_THROWS_WITH_AS(open_store_socket(host_and_port{"127.0.0.1", port}, 0ms),
                           doctest::Contains("choose another for --master"), std::runtime_error);
    }
    const tutti::base::unique_fd store = open_store_socket(host_and_port{"127.0.0.1", port}, 0ms);
    CHECK(listening(store.get()) == 1);
    CHECK_THROWS_WITH_AS(open_store_socket(host_and_port{"192.0.2.1", port}, 0ms),
                         doctest::Contains("--node-rank 0"), std::runtime_error);
  }

  TEST_CASE("for several nodes: a rendezvous address, and a store for each start") {
    const std::string place = testing::free_address();
    const std::size_t colon = place.find(':');
    const host_and_port master{place.substr(0, colon), std::stoi(place.substr(colon + 1))};
    const auto rendezvous = open_rendezvous_sockets(master, 0ms);
    REQUIRE(rendezvous.size() == 1);
    CHECK(listening(rendezvous.front().get()) == 1);
    const auto at = tutti::bootstrap::local_endpoint(rendezvous.front().get()).value().address();
    CHECK(tutti::bootstrap::is_loopback(at));
    CHECK_THROWS_WITH_AS(open_rendezvous_sockets(master, 0ms),
                         doctest::Contains("choose another for --master"), std::runtime_error);
    const tutti::base::unique_fd first = open_store_socket_beside(at);
    const tutti::base::unique_fd second = open_store_socket_beside(at);
    CHECK(listening(first.get()) == 1);
    CHECK(port_of(first) != port_of(second));
    CHECK(port_of(first) != master.port);
    CHECK_THROWS_WITH_AS(open_rendezvous_sockets({"192.0.2.1", master.port}, 0ms),
                         doctest::Contains("--node-rank 0"), std::runtime_error);
    CHECK_THROWS_WITH_AS(open_rendezvous_sockets({"no such host", 1}, 50s), doctest::Contains("no such host"),
                         std::runtime_error);
  }

  TEST_CASE("a reserved port: a server can listen there, at any address, and nothing else does") {
    const tutti::base::unique_fd reserved = reserve_port();
    CHECK(listening(reserved.get()) == 0);
    CHECK((::fcntl(reserved.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(port_of(reserve_port()) != port_of(reserved));
    using boost::asio::ip::address_v4;
    for (const auto& at : {address_v4::any(), address_v4::loopback(), address_v4::any()}) {
      const auto port = static_cast<std::uint16_t>(port_of(reserved));
      const tutti::base::unique_fd server = tutti::bootstrap::listen_at({at, port});
      CHECK(port_of(server) == port);
      CHECK(port_of(reserve_port()) != port);
    }
  }

  TEST_CASE("only rank 0 has the socket, at the port that all ranks are told") {
    // /proc/net/tcp lists a listening socket by port (hexadecimal, state 0A) and inode.
    const char* script =
        "if [ -n \"$TUTTI_STORE_FD\" ]; then\n"
        "  inode=$(readlink /proc/$$/fd/$TUTTI_STORE_FD | tr -dc 0-9)\n"
        "  port=$(printf %04X ${TUTTI_STORE_PORT#$MASTER_PORT:})\n"
        "  grep -q \" 0100007F:$port 00000000:0000 0A .* $inode \" /proc/net/tcp && echo $RANK listens "
        "$TUTTI_STORE_PORT\n"
        "else\n"
        "  ls -l /proc/$$/fd | grep -q socket: || echo $RANK told $TUTTI_STORE_PORT\n"
        "fi";
    const testing::ending end = testing::launch({"-n", "2", "--tag-output", "never", "sh", "-c", script});
    const auto lines = testing::lines_of(end.output);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].starts_with("0 listens "));
    CHECK(lines[1] == "1 told " + lines[0].substr(std::string("0 listens ").size()));
  }

  TEST_CASE("rank 0 gets the socket also behind a program that closes descriptors") {
    for (const std::string in_between : {"eval \"exec ${TUTTI_STORE_FD-9}>&-\"; exec \"$0\"",
                                         "eval \"exec ${TUTTI_STORE_FD-9}</dev/null\"; exec \"$0\""}) {
      CAPTURE(in_between);
      const testing::ending end =
          testing::launch({"-n", "2", "--tag-output", "never", "bash", "-c", in_between, TUTTI_SUMS_PATH});
      CAPTURE(end.error);
      CHECK(testing::count_of(end.output, "of 2: right") == 2);
    }
  }

  TEST_CASE("rank 0 gets the socket again for the next program, although its parent has the port, too") {
    const testing::temporary_directory folder;
    // As by Python's subprocess. The fifo keeps rank 1 from meeting the end of the first program.
    const testing::ending end =
        testing::launch({"-n", "2", "--tag-output", "never", "bash", "-c",
                         "run() { (eval \"exec ${TUTTI_STORE_FD-9}>&-\"; exec \"$1\"); }; run \"$0\"; "
                         "if [ $RANK = 0 ]; then echo next > \"$1\"; else read next < \"$1\"; fi; run \"$0\"",
                         TUTTI_SUMS_PATH, folder.fifo("next")});
    CAPTURE(end.error);
    CHECK(testing::count_of(end.output, "of 2: right") == 4);
  }

  TEST_CASE("a framework of the program's listens at MASTER_PORT while the ranks meet") {
    // As torch.distributed does for env://, again after each restart.
    const char* script =
        "import os, socket, subprocess, sys, time\n"
        "port, end = int(os.environ['MASTER_PORT']), time.monotonic() + 60\n"
        "def connected():\n"
        "    while True:\n"
        "        try: return socket.create_connection((os.environ['MASTER_ADDR'], port))\n"
        "        except ConnectionRefusedError:\n"
        "            if time.monotonic() > end: raise\n"
        "if os.environ['RANK'] == '0':\n"
        "    server = socket.create_server(('', port))\n"
        "    peer, _ = server.accept()\n"
        "else:\n"
        "    peer = connected()\n"
        "subprocess.run([sys.argv[1]], check=True)\n"
        "peer.shutdown(socket.SHUT_WR)\n"
        "peer.recv(1)\n"
        "sys.exit(os.environ['TUTTI_RESTART_COUNT'] == '0')\n";
    const testing::ending end = testing::launch({"-n", "2", "--on-failure", "restart-all", "--tag-output",
                                                 "never", "python3", "-c", script, TUTTI_SUMS_PATH});
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(testing::count_of(end.output, "of 2: right") == 4);
  }

  TEST_CASE("ranks that are told another port meet there") {
    const std::string place = testing::free_address();
    const testing::ending end = testing::launch(
        {"-n", "2", "--tag-output", "never", "env", "MASTER_ADDR=" + place.substr(0, place.rfind(':')),
         "MASTER_PORT=" + place.substr(place.rfind(':') + 1), TUTTI_SUMS_PATH});
    CAPTURE(end.error);
    CHECK(testing::count_of(end.output, "of 2: right") == 2);
  }

  TEST_CASE("the socket closes with rank 0, although the launcher and others live on") {
    const testing::temporary_directory folder;
    const std::string fifo = folder.fifo("go");
    testing::launched job(
        {"-n", "2", "sh", "-c",
         "if [ $RANK = 0 ]; then echo $$ ${TUTTI_STORE_PORT#*:}; read line; exit 0; fi; read line < $0",
         fifo});
    job.wait_for("\n");
    pid_t rank = 0;
    int port = 0;
    std::istringstream(job.output()) >> rank >> port;
    const auto can_connect = [port] {
      const tutti::base::unique_fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      return ::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    };
    CHECK(can_connect());
    testing::watched rank_zero(rank);
    job.close_input();
    CHECK(rank_zero.dies());
    // The launcher, which can pass the socket again, closes it when it sees the end.
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (can_connect() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    CHECK(!can_connect());
    const tutti::base::unique_fd go(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::write(go.get(), "\n", 1) == 1);
    CHECK(job.finish().exit_code == 0);
  }
}
