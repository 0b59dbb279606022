// SPDX-License-Identifier: Apache-2.0
#include <tutti/torch.hpp>

#include <ATen/ops/full.h>

#include <cstdio>

tutti::task<> hello(tutti::communicator world) {
  at::Tensor gradient = at::full({1 << 10}, world.rank() + 1.0);
  co_await world.all_reduce(gradient, tutti::sum);
  if (world.rank() == 0) std::printf("%d ranks, sum %g\n", world.size(), gradient[0].item<double>());
}

int main() { return tutti::run(hello); }
