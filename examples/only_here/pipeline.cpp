// SPDX-License-Identifier: Apache-2.0
// Pipeline parallel: a micro-batch is a coroutine in each stage, and 1F1B is the order in which its awaits resume.
//   tutti-run -n 4 only_pipeline 16       16 micro-batches per step
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <valarray>

using values = std::valarray<float>;

struct stage {  // its part of eight layers: x[l + 1] = tanh(weight[l] x[l])
  tutti::communicator world;
  int rank = world.rank(), last = world.size() - 1, next = std::min(rank + 1, last);
  std::size_t layers = 8 / static_cast<std::size_t>(world.size());
  std::vector<values> weight{layers, values(1.2F, 64)}, change{layers, values(64)};
  tutti::channel<int> in_flight{static_cast<std::size_t>(last - rank + 1)};
  std::chrono::steady_clock::time_point start = tutti::now(), free = start;
  double loss = 0;
  auto compute(int ms) {  // a timer stands for the rank's device, which does one pass at a time
    free = std::max(free, tutti::now()) + std::chrono::milliseconds(ms) * layers;
    return tutti::sleep_for(free - tutti::now());
  }
};

tutti::task<> pass(stage* s, float sample) {
  std::vector<values> x(s->layers + 1, values(sample, 64));  // kept for the backward pass
  values g(64);
  co_await s->in_flight.send(0);  // at most one micro-batch for each stage from here on
  if (s->rank > 0) co_await s->world.recv(x[0], s->rank - 1);
  co_await s->compute(2);
  for (std::size_t l = 0; l < s->layers; ++l) x[l + 1] = std::tanh(s->weight[l] * x[l]);
  tutti::request receiving = s->world.irecv(g, s->next), sending = s->world.isend(x.back(), s->next);
  co_await tutti::when_all(receiving, sending);  // the last stage sends to itself
  co_await s->compute(4);
  if (s->rank == s->last) s->loss += std::pow(g -= 0.5F, 2.0F).sum() / 2;
  for (std::size_t l = s->layers; l-- > 0; g *= s->weight[l])
    s->change[l] -= 0.1F * (g *= 1 - x[l + 1] * x[l + 1]) * x[l];
  if (s->rank > 0) co_await s->world.send(g, s->rank - 1);
  co_await s->in_flight.receive();
}

tutti::task<> train(tutti::communicator world, int m) {
  stage s{world};
  for (int step = 0; step < 3; ++step) {
    tutti::scope passes;
    for (int i = 1; i <= m; ++i) passes.spawn(pass(&s, 0.1F * static_cast<float>(i)));
    co_await passes.join();
    for (std::size_t l = 0; l < s.layers; ++l) s.weight[l] += std::exchange(s.change[l], values(64));
  }
  co_await world.all_reduce(s.loss, tutti::sum);
  if (s.rank == 0)
    std::printf("loss %.9g; time in bubbles %.3f, by the formula %.3f\n", s.loss,
                1 - 18e6 * m * s.layers / (s.free - s.start).count(), 1.0 * s.last / (m + s.last));
}

int main(int argc, char** argv) {
  return tutti::run([=](tutti::communicator w) { return train(w, argc > 1 ? std::atoi(argv[1]) : 8); });
}
