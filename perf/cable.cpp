// SPDX-License-Identifier: Apache-2.0
// A cable between two network namespaces with a rate and a delay each way, for kernels without netem:
//   cable RATE_GBIT DELAY_US NAMESPACE_A NAMESPACE_B
// It makes the device `cable` in both and forwards packets between them until it is ended. Needs root.
//
// The kernel hands over packets of up to 64 KiB (TSO). A packet occupies the wire as long as its segments of
// 1448 bytes would, headers included, and arrives whole. Excess packets stay in the sender's kernel.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using clock = std::chrono::steady_clock;
using nanoseconds = std::chrono::nanoseconds;

constexpr std::size_t most_bytes = 66'000;  // of a packet
constexpr std::size_t preamble = 10;        // virtio_net_hdr; its header does not compile as C++
constexpr std::size_t segment = 1448, headers = 66 + 24;

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

// The device lives as long as the returned descriptor.
int open_end(const std::string& space) {
  const int name = checked(::open(("/var/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC), space.c_str());
  checked(::setns(name, CLONE_NEWNET), "setns");
  ::close(name);
  const int fd = checked(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq wanted{};
  wanted.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strcpy(wanted.ifr_name, "cable");
  checked(::ioctl(fd, TUNSETIFF, &wanted), "TUNSETIFF");
  checked(::ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6), "TUNSETOFFLOAD");
  return fd;
}

struct packet {
  std::vector<char> data;
  clock::time_point due;
};

void carry(int from, int to, double gbit, nanoseconds delay) {
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  std::deque<packet> on_the_way;
  std::vector<char> buffer(most_bytes);
  clock::time_point free = clock::now();  // when all packets so far will have been sent
  for (;;) {
    const clock::time_point now = clock::now();
    while (!on_the_way.empty() && on_the_way.front().due <= now) {
      const packet& p = on_the_way.front();
      while (::write(to, p.data.data(), p.data.size()) < 0 && errno == EAGAIN) std::this_thread::yield();
      on_the_way.pop_front();
    }
    // Takes only what the wire has room for, so that TCP sees a full queue as at a network card.
    const bool takes = free <= now + std::chrono::microseconds(200);
    if (takes) {
      const ssize_t got = ::read(from, buffer.data(), buffer.size());
      if (got > 0) {
        const std::size_t bytes = static_cast<std::size_t>(got) - preamble;
        const double on_wire = static_cast<double>(bytes + headers * (bytes / segment + 1));
        free = std::max(free, now) + nanoseconds(static_cast<long>(on_wire * 8 / gbit));
        on_the_way.push_back({{buffer.begin(), buffer.begin() + got}, free + delay});
        continue;
      }
    }
    clock::time_point next = now + std::chrono::seconds(1);
    if (!on_the_way.empty()) next = on_the_way.front().due;
    if (!takes) next = std::min(next, free - std::chrono::microseconds(200));
    const nanoseconds rest = std::max<nanoseconds>(next - clock::now(), nanoseconds(0));
    const timespec wait{rest.count() / 1'000'000'000, rest.count() % 1'000'000'000};
    pollfd arriving{takes ? from : -1, POLLIN, 0};
    ::ppoll(&arriving, 1, &wait, nullptr);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fputs("cable RATE_GBIT DELAY_US NAMESPACE_A NAMESPACE_B\n", stderr);
    return 2;
  }
  const double gbit = std::atof(argv[1]);
  const nanoseconds delay(static_cast<long>(std::atof(argv[2]) * 1000));
  const int a = open_end(argv[3]), b = open_end(argv[4]);
  std::puts("ready");
  std::fflush(stdout);
  std::thread back(carry, b, a, gbit, delay);
  carry(a, b, gbit, delay);
} catch (const std::exception& failure) {
  std::fprintf(stderr, "cable: %s\n", failure.what());
  return 1;
}
