// SPDX-License-Identifier: Apache-2.0
// A parameter server: rank 0 adds each update as it arrives, and answers with the current parameters.
//   tutti-run -n 4 only_parameter_server
#include <tutti/messages.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>
#include <vector>

constexpr int steps = 10;
constexpr std::size_t size = 1000;

tutti::task<> serve(tutti::communicator world) {
  std::vector<float> parameters(size, 0);
  auto updates = tutti::messages<float>(world);
  for (int left = steps * (world.size() - 1); left > 0; --left) {
    const auto update = co_await updates.next();
    for (std::size_t i = 0; i < size; ++i) parameters[i] += update->data[i];
    co_await world.send(parameters, update->from.source);
  }
  std::printf("%d updates of %d workers, each parameter is %g\n", steps * (world.size() - 1),
              world.size() - 1, parameters[0]);
}

tutti::task<> work(tutti::communicator world) {
  std::vector<float> parameters(size, 0);
  const std::vector<float> update(size, 1);
  for (int step = 0; step < steps; ++step) {  // no worker waits for another
    co_await world.send(update, 0);
    co_await world.recv(parameters, 0);
  }
}

tutti::task<> program(tutti::communicator world) {
  if (world.rank() == 0) {
    co_await serve(world);
  } else {
    co_await work(world);
  }
}

int main() { return tutti::run(program); }
