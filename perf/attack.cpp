// SPDX-License-Identifier: Apache-2.0
// Measures what unauthenticated peers at every port cost the ranks: all_reduce of four ranks over TCP. Three
// kinds of seconds alternate: quiet; 1000 calls a second to ports of another process; the same calls to the
// ranks' own ports. The second kind is the baseline, because callers and the kernel use the same cores
// whichever port they call.
//
//   attack-perf [rounds of three seconds, 10] [bytes, 4096] [tls]
#include "common/unauthenticated_peers.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <optional>
#include <tutti/tutti.hpp>

namespace {

using tutti::communicator;
using tutti::task;
using clock_type = std::chrono::steady_clock;

enum phase : int { quiet, elsewhere, here, phases, over };
constexpr const char* names[phases] = {"quiet", "callers elsewhere", "callers here"};
constexpr std::size_t most_samples = 4'000'000;

// Shared by the processes.
struct shared {
  std::atomic<int> now{quiet};
  std::atomic<bool> ready{false};
  std::atomic<std::size_t> samples[phases] = {};
  std::atomic<std::size_t> wrong{0};
  float microseconds[phases][most_samples];
};

task<> measure(communicator world, std::size_t count, shared* with) {
  std::vector<float> x(count);
  for (;;) {
    const int before = with->now;
    std::fill(x.begin(), x.end(), static_cast<float>(world.rank() + 1));
    const auto begin = clock_type::now();
    co_await world.all_reduce(x, tutti::sum);
    const std::chrono::duration<float, std::micro> took = clock_type::now() - begin;
    if (std::any_of(x.begin(), x.end(), [](float f) { return f != 10.0F; })) ++with->wrong;
    if (world.rank() == 0 && before < phases && before == with->now) {
      const std::size_t at = with->samples[before]++;
      if (at < most_samples) with->microseconds[before][at] = took.count();
    }
    int end = with->now == over ? 1 : 0;
    co_await world.all_reduce(end, tutti::max);
    with->ready = true;
    if (end != 0) co_return;
  }
}

// Accepts connections and closes them at once, at the least possible cost.
void take_and_drop(std::size_t ports) {
  std::vector<pollfd> listening;
  for (std::size_t i = 0; i < ports; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 || ::listen(fd, 1024) != 0)
      std::exit(1);
    listening.push_back({fd, POLLIN, 0});
  }
  for (;;) {
    ::poll(listening.data(), listening.size(), -1);
    for (const pollfd& p : listening)
      for (int fd; (fd = ::accept(p.fd, nullptr, nullptr)) >= 0;) ::close(fd);
  }
}

template <class F>
pid_t in_a_process(F body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  body();
  std::_Exit(0);
}

std::vector<std::uint16_t> ports_of(pid_t process, std::size_t number) {
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::uint16_t> ports = perf::listening_ports(std::to_string(process));
    if (ports.size() >= number) return ports;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::fprintf(stderr, "attack-perf: a process does not listen\n");
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  const std::size_t bytes = argc > 2 ? static_cast<std::size_t>(std::atol(argv[2])) : 4096;
  void* const memory =
      ::mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || rounds < 1 || bytes < 4) return 2;
  auto* const with = new (memory) shared;
  const pid_t ranks = in_a_process([&] {
    tutti::init_options o;
    o.transports = {"tcp"};
    o.secret = "known to the ranks";
    o.tls = argc > 3;
    tutti::run_local(4, o, [&](communicator world) { return measure(std::move(world), bytes / 4, with); });
  });
  const pid_t bystander = in_a_process([] { take_and_drop(4); });
  const std::vector<std::uint16_t> theirs = ports_of(bystander, 4), ours = ports_of(ranks, 4);
  while (!with->ready) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::size_t calls[phases] = {};
  for (int i = 0; i < rounds * phases; ++i) {
    const int p = i % phases;
    std::optional<perf::unauthenticated_peers> callers;
    if (p != quiet) callers.emplace(p == here ? ours : theirs);
    with->now = p;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    if (!callers) continue;
    callers->stop();
    calls[p] += callers->calls();
  }
  with->now = over;
  int status = 0;
  ::waitpid(ranks, &status, 0);
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
  std::printf("all_reduce of %zu bytes, 4 ranks, TCP%s, %d s of each kind\n", bytes,
              argc > 3 ? " with TLS" : "", rounds);
  std::printf("%-18s %10s %12s %9s %9s %9s\n", "seconds", "calls/s", "all_reduces", "p50 us", "p99 us",
              "right");
  const bool right = with->wrong == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  for (int p = 0; p < phases; ++p) {
    const std::size_t n = std::min<std::size_t>(with->samples[p], most_samples);
    float* const first = with->microseconds[p];
    std::sort(first, first + n);
    const auto quantile = [&](double q) {
      return n == 0 ? 0.0F : first[static_cast<std::size_t>(q * static_cast<double>(n - 1))];
    };
    std::printf("%-18s %10zu %12zu %9.1f %9.1f %9s\n", names[p], calls[p] / static_cast<std::size_t>(rounds),
                n, static_cast<double>(quantile(0.5)), static_cast<double>(quantile(0.99)),
                right ? "yes" : "NO");
  }
  return right ? 0 : 1;
}
