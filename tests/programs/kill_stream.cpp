// SPDX-License-Identifier: Apache-2.0
// A stream of all_reduce, broadcast and all_gather in which one rank is killed, for comm/kill_drill_test:
// `kill_stream FILE VICTIM BYTES DELAY_US`. All ranks map FILE, where the victim writes the time of its
// death. Every survivor prints `noticed` and the microseconds since then, or a line that begins with WRONG if
// failed_ranks() lacks a rank that the error names.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using tutti::communicator;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void die_after(std::chrono::microseconds delay, std::atomic<std::int64_t>* at) {
  std::thread([delay, at] {
    std::this_thread::sleep_for(delay);
    at->store(now_ns());
    ::kill(::getpid(), SIGKILL);
  }).detach();
}

tutti::task<> stream(communicator world, std::span<float> data, std::span<float> all) {
  for (int i = 0;; ++i) {
    co_await world.all_reduce(data, tutti::max);
    co_await world.broadcast(data, i % world.size());
    co_await world.all_gather(data, all);
  }
}

// The ranks named by an error: "rank 2 (host b, pid 77)".
std::vector<int> named_in(const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t at = 0; (at = text.find("rank ", at)) != std::string::npos; ++at) {
    char* end = nullptr;
    const long rank = std::strtol(text.c_str() + at + 5, &end, 10);
    if (end != text.c_str() + at + 5 && std::string(end, 2) == " (") ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

tutti::task<> survive(communicator world, int victim, std::size_t count, std::chrono::microseconds delay,
                      std::atomic<std::int64_t>* died_at) {
  std::vector<float> data(count, 1), all(count * static_cast<std::size_t>(world.size()));
  std::string text;
  try {
    co_await world.barrier();
    if (world.rank() == victim) die_after(delay, died_at);
    co_await stream(world, data, all);
  } catch (const tutti::error& e) {
    const std::int64_t noticed = now_ns();
    const std::vector<int> failed = world.failed_ranks();
    text = e.what();
    std::vector<int> expected = named_in(text);
    const bool names_it = std::find(expected.begin(), expected.end(), victim) != expected.end();
    const bool knows_all = std::all_of(expected.begin(), expected.end(), [&](int rank) {
      return std::find(failed.begin(), failed.end(), rank) != failed.end();
    });
    if (e.code() == tutti::errc::peer_failed && names_it && knows_all) {
      std::printf("noticed %lld\n", static_cast<long long>((noticed - died_at->load()) / 1000));
      co_return;
    }
  }
  std::printf("WRONG rank %d: %zu failed ranks after: %s\n", world.rank(), world.failed_ranks().size(),
              text.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: kill_stream FILE VICTIM BYTES DELAY_US\n");
    return 2;
  }
  using shared = std::atomic<std::int64_t>;
  const int fd = ::open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(shared)) != 0) return 2;
  void* const memory = ::mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return 2;
  const int victim = std::atoi(argv[2]);
  const std::size_t count = std::strtoull(argv[3], nullptr, 0) / sizeof(float);
  const std::chrono::microseconds delay(std::strtoull(argv[4], nullptr, 0));
  return tutti::run([=](communicator world) {
    return survive(std::move(world), victim, count, delay, static_cast<shared*>(memory));
  });
}
