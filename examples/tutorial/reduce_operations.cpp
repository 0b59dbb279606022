// SPDX-License-Identifier: Apache-2.0
// The eight reduce operations of PyTorch's tutorial, element by element over all ranks, and one more.
//   tutti-run -n 4 tutorial_reduce_operations
#include <cstdio>
#include <tutti/tutti.hpp>
#include <vector>

template <class T, class Op>
tutti::task<> show(tutti::communicator world, const char* name, std::vector<T> tensor, Op op) {
  co_await world.all_reduce(tensor, op);
  if (world.rank() == 0)
    std::printf("%s: %g %g\n", name, static_cast<double>(tensor[0]), static_cast<double>(tensor[1]));
}

tutti::task<> run(tutti::communicator world) {
  const int rank = world.rank();
  const std::vector<float> numbers{static_cast<float>(rank + 1), static_cast<float>(-rank)};
  co_await show(world, "sum", numbers, tutti::sum);
  co_await show(world, "product", numbers, tutti::product);
  co_await show(world, "max", numbers, tutti::max);
  co_await show(world, "min", numbers, tutti::min);

  const std::vector<int> bits{8 + rank, 1 << rank};  // of integers, and of bool
  co_await show(world, "band", bits, tutti::band);
  co_await show(world, "bor", bits, tutti::bor);
  co_await show(world, "bxor", bits, tutti::bxor);

  co_await show(world, "premul_sum", numbers, tutti::premul_sum(0.5));  // multiplied before they are added
  co_await show(world, "avg", numbers, tutti::avg);                     // not in PyTorch's list
}

int main() { return tutti::run(run); }
