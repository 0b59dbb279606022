// SPDX-License-Identifier: Apache-2.0
// socket-perf: the limit of TCP over loopback for tutti and its rivals: one connection, send(), and a recv()
// that polls. No headers, no matching, no second core.
//   socket-perf latency
#include "common/forked_program.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace {

using perf::command;

const perf::program_names names{
    "socket-perf", "", false, {command::latency, command::bandwidth, command::message_rate}};

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

using both_ends = std::array<int, 2>;  // open until the program ends

both_ends connected_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || ::bind(listener, name, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, name, &length) != 0)
    fail("listen on the loopback");
  both_ends ends;
  ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (ends[0] < 0 || ::connect(ends[0], name, length) != 0) fail("connect to the loopback");
  ends[1] = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (ends[1] < 0) fail("accept on the loopback");
  ::close(listener);
  for (const int end : ends) {
    const int on = 1;
    if (::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
  }
  return ends;
}

// Connects each pair of ranks.
std::vector<both_ends> connected(const perf::options& chosen) {
  std::vector<both_ends> pairs;
  for (int rank = 0; rank < chosen.ranks; rank += 2) pairs.push_back(connected_pair());
  return pairs;
}

class socket_world : public perf::forked_world {
 public:
  socket_world(const perf::forked_world& control, const perf::options&, const std::vector<both_ends>& pairs)
      : forked_world(control),
        socket_(pairs[static_cast<std::size_t>(rank() / 2)][static_cast<std::size_t>(rank() % 2)]) {}

  static std::string library() { return "sockets"; }
  static std::string transport() { return "tcp"; }

  void run_rounds(perf::message_pair* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (data->begins()) send(data->out());
      receive(data->in());
      data->sample();
      if (!data->begins()) send(data->out());
    }
  }

  void run_rounds(perf::message_window* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (int i = 0; i < data->slots(); ++i) {
        if (rank() == 0)
          send(data->slot(i));
        else
          receive(data->slot(i));
      }
      std::int64_t arrived = round;
      const std::span<std::byte> answer = std::as_writable_bytes(std::span(&arrived, 1));
      if (rank() == 0) {
        receive(answer);
        data->sample_answer(arrived, round);
      } else {
        data->sample();
        send(answer);
      }
    }
  }

 private:
  // Blocks until the peer reads, if the socket is full.
  void send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) fail("send");
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
  void receive(std::span<std::byte> bytes) const {
    for (unsigned looks = 1; !bytes.empty(); ++looks) {
      const ssize_t received = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (received > 0)
        bytes = bytes.subspan(static_cast<std::size_t>(received));
      else if (received == 0)
        throw std::runtime_error("the other rank has gone");
      else if (errno != EAGAIN)
        fail("recv");
      else if (looks % 1024 == 0)
        perf::yield_core();
    }
  }

  int socket_;
};

}  // namespace

int main(int argc, char** argv) {
  return perf::run_forked_program<socket_world>(argc, argv, names, connected);
}
