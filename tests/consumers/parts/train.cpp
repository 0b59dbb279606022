// SPDX-License-Identifier: Apache-2.0
// A user's program on tutti::train.
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>
#include <vector>

tutti::task<> compare(tutti::communicator world) {
  const std::vector<float> values{1, 2};
  const tutti::replica_check check = co_await tutti::compare_replicas(world, values);
  std::printf("train: %s\n", check.agree() ? "yes" : "no");
}

int main() { return tutti::run(compare); }
