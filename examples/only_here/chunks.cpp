// SPDX-License-Identifier: Apache-2.0
// The optimiser steps on the first parameters while the gradients of the others are still being averaged.
//   tutti-run -n 4 only_chunks
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  constexpr float rate = 0.5F;
  std::vector<float> parameters(1'000'000, 10), gradient(parameters.size(), static_cast<float>(world.rank()));
  auto chunks = world.all_reduce_chunks(gradient, tutti::avg);
  std::size_t at = 0;
  for (;;) {
    const auto chunk = co_await chunks.next();
    if (!chunk) break;
    for (const float g : *chunk) parameters[at++] -= rate * g;  // the next chunks are on their way meanwhile
  }
  const float mean = static_cast<float>(world.size() - 1) / 2;
  const bool right = std::ranges::all_of(parameters, [=](float p) { return p == 10 - rate * mean; });
  if (world.rank() == 0)
    std::printf("%zu parameters stepped in %zu chunks: %s\n", at, chunks.chunks(),
                right ? "correct" : "WRONG");
}

int main() { return tutti::run(program); }
