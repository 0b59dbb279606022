// SPDX-License-Identifier: Apache-2.0
// A vector in shared memory: a message from it to a rank of the same host is copied once, not twice. The
// receiver copies out of the sender's own pages. Each receiver still has a buffer of its own.
//   tutti-run -n 4 only_shared
#include <tutti/shared_memory.hpp>
#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

tutti::task<> program(tutti::communicator world) {
  constexpr std::size_t size = 4'000'000;
  if (world.rank() == 0) {
    const tutti::shared_vector<float> weights(size, 3);  // the only change: its allocator
    for (int to = 1; to < world.size(); ++to) co_await world.send(weights, to);
    std::printf("rank 0 sent %zu floats to %d ranks\n", weights.size(), world.size() - 1);
  } else {
    std::vector<float> weights(size);
    co_await world.recv(weights, 0);
    const bool right = std::ranges::count(weights, 3.0F) == std::ssize(weights);
    std::printf("rank %d: %s\n", world.rank(), right ? "correct" : "WRONG");
  }
}

int main() { return tutti::run(program); }
