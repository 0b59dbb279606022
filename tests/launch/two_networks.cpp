// SPDX-License-Identifier: Apache-2.0
#include "two_networks.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

namespace tutti::launch::testing {

std::unique_ptr<two_networks> two_networks::make(std::string& why_not) {
  if (std::system("ip -V >/dev/null 2>&1") != 0) {
    why_not = "there is no `ip` (Debian: iproute2) to lay a cable between networks with";
    return nullptr;
  }
  std::unique_ptr<two_networks> made(new two_networks);
  if (!made->add_host(made->hosts_[0]) || !made->add_host(made->hosts_[1])) {
    why_not = "this user may not make network namespaces";
    return nullptr;
  }
  const std::string cable =
      "ip link add cable type veth peer name cable netns " + std::to_string(made->hosts_[1].holder);
  if (!made->run(0, cable + " 2>/dev/null")) {
    why_not = "this kernel, or this user, has no cable (veth) for networks";
    return nullptr;
  }
  for (const int host : {0, 1})
    REQUIRE(made->run(
        host, "ip link set lo up && ip addr add " + address(host) + "/24 dev cable && ip link set cable up"));
  // Until a worker of the kernel has seen the carrier, packets are dropped. Other namespaces that end may hold it up
  // for longer than ARP asks (3 s).
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (const int host : {0, 1})
    while (!made->run(host, "ip link show dev cable | grep -q 'state UP'"))
      REQUIRE(std::chrono::steady_clock::now() < deadline);
  return made;
}

bool two_networks::add_host(computer& h) {
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const base::unique_fd reader(ready[0]);
  base::unique_fd writer(ready[1]);
  const pid_t test = ::getpid();
  h.holder = ::fork();
  REQUIRE(h.holder >= 0);
  if (h.holder == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != test || ::unshare(CLONE_NEWNET) != 0 || ::write(writer.get(), "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  writer.reset();
  char byte = 0;
  if (::read(reader.get(), &byte, 1) != 1) return false;
  const std::string path = "/proc/" + std::to_string(h.holder) + "/ns/net";
  h.network.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return static_cast<bool>(h.network);
}

two_networks::~two_networks() {
  for (const computer& h : hosts_) {
    if (h.holder <= 0) continue;
    ::kill(h.holder, SIGKILL);
    ::waitpid(h.holder, nullptr, 0);
  }
}

bool two_networks::leave_ipv4() {
  for (const int host : {0, 1})
    if (!run(host, "ip -4 addr flush dev lo && ip -4 addr flush dev cable && ip -6 addr add " +
                       address_v6(host) + "/64 dev cable nodad 2>/dev/null"))
      return false;
  return true;
}

void two_networks::add_interfaces() {
  for (const int host : {0, 1}) {
    const std::string network = unreachable_address(host).substr(0, 7);
    for (int i = 1; i <= 5; ++i) {
      const std::string n = std::to_string(i), a = "a" + n, b = "b" + n;
      REQUIRE(run(host, "ip link add " + a + " type veth peer name " + b + " && ip addr add " + network + n +
                            ".1/24 dev " + a + " && ip addr add " + network + "1" + n + ".1/24 dev " + b +
                            " && ip link set " + a + " up && ip link set " + b + " up"));
    }
  }
}

void two_networks::cut() { REQUIRE(run(1, "ip link set cable down")); }

// Both send to a card that there is not.
void two_networks::swallow() {
  for (const int host : {0, 1})
    REQUIRE(run(
        host, "ip neigh replace " + address(1 - host) + " lladdr 02:00:00:00:00:77 dev cable nud permanent"));
}

bool two_networks::slow_down(const std::string& how) {
  const std::string command = "tc qdisc add dev cable root " + how + " 2>/dev/null";
  return run(0, command) && run(1, command);
}

bool two_networks::run(int host, const std::string& command) const {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::setns(network(host), CLONE_NEWNET) == 0) ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tutti::launch::testing
