// SPDX-License-Identifier: Apache-2.0
// Makes about a thousand unauthenticated connections a second to every port: port scans, browsers, noise,
// silent connections, single bytes, or the beginning of the right protocol.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace perf {

// IPv4 ports on which the process `pid` ("self": this one) listens.
inline std::vector<std::uint16_t> listening_ports(const std::string& pid = "self") {
  std::set<std::string> sockets;
  const std::string directory = "/proc/" + pid + "/fd";
  if (DIR* const files = ::opendir(directory.c_str())) {
    while (const dirent* const entry = ::readdir(files)) {
      char target[64] = {};
      if (::readlink((directory + "/" + entry->d_name).c_str(), target, sizeof target - 1) <= 0) continue;
      if (std::strncmp(target, "socket:[", 8) == 0)
        sockets.insert(std::string(target + 8, std::strcspn(target + 8, "]")));
    }
    ::closedir(files);
  }
  std::vector<std::uint16_t> ports;
  std::ifstream table("/proc/" + pid + "/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, skip, inode;
    words >> number >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    constexpr const char* listening = "0A";
    if (state != listening || !sockets.contains(inode)) continue;
    ports.push_back(
        static_cast<std::uint16_t>(std::strtoul(local.c_str() + local.find(':') + 1, nullptr, 16)));
  }
  return ports;
}

class unauthenticated_peers {
 public:
  // Calls `ports` in turn until stop(), one call a millisecond.
  explicit unauthenticated_peers(std::vector<std::uint16_t> ports)
      : ports_(std::move(ports)), thread_([this] { run(); }) {}
  ~unauthenticated_peers() { stop(); }
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::size_t calls() const noexcept { return calls_; }
  // Bytes received beyond preamble, number and verdict, which every peer gets. Not 0 only if a peer was
  // admitted.
  std::size_t learnt_bytes() const noexcept { return learnt_; }

 private:
  static constexpr std::size_t most_open = 300;
  static constexpr std::size_t told_to_everybody = 44 + 40;
  enum class manner { scan, browser, noise, silent, one_byte_at_a_time, right_greeting, half_closed, last };
  struct connection {
    int fd;
    manner how;
    std::size_t heard = 0;
    std::size_t said = 0;
  };

  void call(std::uint16_t port, manner how) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    // Bytes that cannot be sent at once are dropped.
    (void)!::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    ++calls_;
    const auto say = [fd](const void* what, std::size_t bytes) {
      (void)!::send(fd, what, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    };
    switch (how) {
      case manner::scan:
        ::close(fd);
        return;
      case manner::browser: {
        constexpr char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        say(request, sizeof request - 1);
        break;
      }
      case manner::noise: {
        unsigned char bytes[700];
        for (std::size_t i = 0; i < sizeof bytes; ++i)
          bytes[i] = static_cast<unsigned char>(i * 37 + calls_ * 11);
        say(bytes, sizeof bytes);
        break;
      }
      case manner::right_greeting: {
        // Followed by a wrong proof.
        unsigned char claim[96] = {'t', 'u', 't', 't', 'i', '\r', '\n', 0, 2, 0, 2, 0};
        say(claim, calls_ % 2 == 0 ? 12 : sizeof claim);
        break;
      }
      case manner::half_closed:
        ::shutdown(fd, SHUT_WR);
        break;
      case manner::silent:
      case manner::one_byte_at_a_time:
      case manner::last:
        break;
    }
    open_.push_back({fd, how});
  }

  // Returns true if the other side has closed the connection.
  bool attend(connection& c) {
    constexpr char slowly[] = "tutti\r\n";
    if (c.how == manner::one_byte_at_a_time && c.said < sizeof slowly - 1)
      if (::send(c.fd, &slowly[c.said], 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) ++c.said;
    char sink[512];
    for (;;) {
      const ssize_t got = ::recv(c.fd, sink, sizeof sink, MSG_DONTWAIT);
      if (got <= 0) return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
      c.heard += static_cast<std::size_t>(got);
      if (c.heard > told_to_everybody) learnt_ += static_cast<std::size_t>(got);
    }
  }

  void run() {
    auto next = std::chrono::steady_clock::now();
    for (unsigned n = 0; !over_; ++n) {
      next += std::chrono::milliseconds(1);
      std::this_thread::sleep_until(next);
      if (!ports_.empty())
        call(ports_[n % ports_.size()],
             static_cast<manner>(n / ports_.size() % static_cast<unsigned>(manner::last)));
      if (n % 20 != 0 && open_.size() < most_open) continue;
      std::erase_if(open_, [this](connection& c) {
        if (!attend(c) && open_.size() < most_open) return false;
        ::close(c.fd);
        return true;
      });
    }
    for (const connection& c : open_) ::close(c.fd);
  }

  const std::vector<std::uint16_t> ports_;
  std::vector<connection> open_;
  std::atomic<bool> over_{false};
  std::atomic<std::size_t> calls_{0};
  std::atomic<std::size_t> learnt_{0};
  std::thread thread_;
};

}  // namespace perf
