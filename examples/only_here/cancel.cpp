// SPDX-License-Identifier: Apache-2.0
// An all_reduce of 1 GiB is cancelled on its way, and its buffer used at once: nothing writes to it any more.
//   tutti-run -n 2 only_cancel         1024 MiB on each rank
//   tutti-run -n 4 only_cancel 64      64 MiB
#include <tutti/tutti.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

tutti::task<> cancel(tutti::communicator world, std::size_t mib) {
  using namespace std::chrono_literals;
  tutti::communicator work = co_await world.duplicate();
  const float mine = static_cast<float>(world.rank());
  std::vector<float> x;
  // Filling a GiB on another thread keeps the loop thread free for communication.
  const auto make = [&x, mib] { x.assign((mib << 20) / sizeof(float), 1); };
  co_await tutti::compute(make);
  co_await world.barrier();
  const auto start = std::chrono::steady_clock::now();
  bool cancelled = false;
  try {
    co_await tutti::with_timeout(work.all_reduce(x, tutti::sum), 1ms);
  } catch (const tutti::error&) {
    cancelled = true;
  }
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  const auto fill = [&x, mine] { std::ranges::fill(x, mine); };
  co_await tutti::compute(fill);  // without a copy, without waiting for the others
  co_await world.barrier();
  const auto check = [&x, mine] { return std::ranges::count(x, mine) == std::ssize(x); };
  const bool whole = co_await tutti::compute(check);
  std::printf("rank %d: %s after %.0f ms; the buffer is %s\n", world.rank(), cancelled ? "cancelled" : "done",
              spent.count(), whole ? "its own" : "WRITTEN TO");
}

int main(int argc, char** argv) {
  const std::size_t mib = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024;
  return tutti::run([=](tutti::communicator world) { return cancel(world, mib); });
}
