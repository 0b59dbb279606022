// SPDX-License-Identifier: Apache-2.0
#include "common/placement.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

namespace perf {
namespace {

using clock = std::chrono::steady_clock;

constexpr int repetitions = 5;
constexpr int round_trips = 400;
constexpr auto patience = std::chrono::milliseconds(50);

// All cores that the machine grants, even if a launcher has bound this rank to one of them.
std::vector<int> grantable_cores() noexcept {
  cpu_set_t all, granted;
  CPU_ZERO(&all);
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &all);
  std::vector<int> cores;
  std::thread([&] {
    if (pthread_setaffinity_np(pthread_self(), sizeof all, &all) != 0) return;
    if (pthread_getaffinity_np(pthread_self(), sizeof granted, &granted) != 0) return;
    for (int core = 0; core < CPU_SETSIZE && cores.size() < 2; ++core)
      if (CPU_ISSET(core, &granted)) cores.push_back(core);
  }).join();
  return cores;
}

bool pin_to(int core) noexcept {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}

// One cache line, sent back and forth. An odd value means that the far thread must answer.
struct alignas(64) ball {
  std::atomic<int> value{0};
};

class game {
 public:
  // Waits until the line holds `wanted`. Returns false at the deadline.
  bool wait_for(int wanted) noexcept {
    for (unsigned looks = 1; ball_.value.load(std::memory_order_acquire) != wanted; ++looks)
      if (looks % 1024 == 0 && (stopped_.load(std::memory_order_relaxed) || clock::now() > deadline_)) {
        stop();
        return false;
      }
    return true;
  }
  void hand(int value) noexcept { ball_.value.store(value, std::memory_order_release); }
  void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }

 private:
  ball ball_;
  alignas(64) std::atomic<bool> stopped_{false};
  clock::time_point deadline_ = clock::now() + patience;
};

constexpr int trips = repetitions * round_trips + 1;  // one extra trip to synchronise both threads

void answer(game& line, int core) noexcept {
  if (!pin_to(core)) return line.stop();
  for (int trip = 0; trip < trips; ++trip) {
    if (!line.wait_for(2 * trip + 1)) return;
    line.hand(2 * trip + 2);
  }
}

double serve(game& line, int core) noexcept {
  double best = std::numeric_limits<double>::max();
  if (!pin_to(core)) line.stop();
  int trip = 0;
  const auto go = [&] {
    line.hand(2 * trip + 1);
    const bool back = line.wait_for(2 * trip + 2);
    ++trip;
    return back;
  };
  if (!go()) return 0;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const auto begin = clock::now();
    for (int i = 0; i < round_trips; ++i)
      if (!go()) return 0;
    best = std::min(best, std::chrono::duration<double, std::nano>(clock::now() - begin).count());
  }
  return best / round_trips / 2;
}

}  // namespace

double cache_line_ns() noexcept try {
  const std::vector<int> cores = grantable_cores();
  if (cores.size() < 2) return 0;
  game line;
  double result = 0;
  {
    std::jthread far([&] { answer(line, cores[1]); });
    std::jthread near([&] { result = serve(line, cores[0]); });
  }
  return result;
} catch (const std::exception&) {
  return 0;  // no thread or no memory: continue without the label
}

char place_of(double line_ns) noexcept {
  if (line_ns <= 0) return unknown_place;
  if (line_ns < 32) return 'S';
  return line_ns < 140 ? 'C' : 'X';
}

std::string text_of_line(double line_ns) {
  if (line_ns <= 0) return "unknown (-)";
  char text[32];
  std::snprintf(text, sizeof text, "%.0f ns (%c)", line_ns, place_of(line_ns));
  return text;
}

std::string text_of_places(double before_ns, double after_ns) {
  std::string text(1, place_of(before_ns));
  if (place_of(after_ns) != text[0]) text += {'>', place_of(after_ns)};
  return text;
}

}  // namespace perf
