// SPDX-License-Identifier: Apache-2.0
// Every rank contributes a gradient; every rank gets the sum.
//   tutti-run -n 4 hello
// clang-format off
#include <tutti/tutti.hpp>
#include <cstdio>
#include <vector>

tutti::task<> hello(tutti::communicator world) {
  std::vector<float> gradient(1 << 20, static_cast<float>(world.rank() + 1));
  co_await world.all_reduce(gradient, tutti::sum);
  if (world.rank() == 0) std::printf("%d ranks, sum %g\n", world.size(), gradient[0]);
}

int main() { return tutti::run(hello); }
