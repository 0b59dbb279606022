// SPDX-License-Identifier: Apache-2.0
// Heat spreads along a rod that is divided among the ranks. Each rank writes its ends into its neighbours' halos, and
// waits for theirs: no receive, no barrier. On one host the shared_vector is written in place.
//   tutti-run -n 4 only_halo
#include <tutti/tutti.hpp>

#include <array>
#include <cstdio>
#include <span>

constexpr std::size_t cells = 16;
constexpr int steps = 100, from_left = 0, from_right = 1;

tutti::task<> program(tutti::communicator world) {
  const int me = world.rank(), left = me - 1, right = me + 1 == world.size() ? -1 : me + 1;
  // Two halos at each end, for even and odd steps: a neighbour may be one step ahead.
  tutti::shared_vector<double> halos(4, 0.0);
  tutti::window w = co_await world.window(std::span(halos));
  std::array<double, cells + 2> rod{};
  if (me == 0) rod[1] = 1000;  // all heat is at one end

  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t turn = step % 2 * 2;
    if (left >= 0) co_await w.put_signal(rod[1], left, turn + from_right, from_right);
    if (right >= 0) co_await w.put_signal(rod[cells], right, turn + from_left, from_left);
    const auto has_come = [step](std::uint64_t n) { return n > step; };
    if (left >= 0) co_await w.wait_signal(from_left, has_come);
    if (right >= 0) co_await w.wait_signal(from_right, has_come);
    rod[0] = left >= 0 ? halos[turn + from_left] : rod[1];
    rod[cells + 1] = right >= 0 ? halos[turn + from_right] : rod[cells];
    auto before = rod;
    for (std::size_t i = 1; i <= cells; ++i) rod[i] = (before[i - 1] + before[i] + before[i + 1]) / 3;
  }
  double heat = 0;
  for (std::size_t i = 1; i <= cells; ++i) heat += rod[i];
  co_await world.all_reduce(heat, tutti::sum);  // and no rank drops its window earlier
  if (me == 0) std::printf("after %d steps the rod has %.6g of 1000 units of heat\n", steps, heat);
}

int main() { return tutti::run(program); }
