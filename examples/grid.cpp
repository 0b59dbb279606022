// SPDX-License-Identifier: Apache-2.0
// Data and pipeline parallel at once, on a grid of replicas and stages. When ranks die, the others make a smaller grid.
// They go on from the memory of a replica that has the layers of the dead, and otherwise from the checkpoint.
//   tutti-run -n 4 grid                                   its checkpoint is in the file grid.checkpoint
//   tutti-run -n 4 --on-failure continue grid 3@8         rank 3 kills itself in the middle of step 8
//   tutti-run -n 4 --on-failure continue grid 1@8 3@8     both replicas of a stage: back to the checkpoint of step 5
#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace {

constexpr int layers = 8, width = 64, micro_batches = 8, steps = 15, steps_per_checkpoint = 5;

struct model {
  std::span<float> layers_from(int begin, int end) {
    return std::span(weights).subspan(static_cast<std::size_t>(begin * width),
                                      static_cast<std::size_t>((end - begin) * width));
  }

  int step = 0, first = 0, last = layers;  // this rank holds the layers from first to last
  std::vector<float> weights = std::vector<float>(layers * width, 1.2F), before;
  std::optional<std::chrono::steady_clock::time_point> stepped;
};

// A rank's part of the model in one step: x[l + 1] = tanh(weight[l] x[l]), element by element.
struct stage {
  tutti::communicator pipeline;
  std::span<float> weights;
  std::vector<float> change;
  tutti::channel<int> in_flight;
  double loss = 0;
};

tutti::task<> pass(stage* s, float sample) {
  const int rank = s->pipeline.rank(), last = s->pipeline.size() - 1, next = std::min(rank + 1, last);
  const std::size_t n = s->weights.size();
  std::vector<float> x(n + width, sample), g(width);
  const std::span input = std::span(x).first(width), output = std::span(x).last(width);
  co_await s->in_flight.send(0);
  if (rank > 0) co_await s->pipeline.recv(input, rank - 1);
  for (std::size_t j = 0; j < n; ++j) x[j + width] = std::tanh(s->weights[j] * x[j]);
  tutti::request receiving = s->pipeline.irecv(g, next), sending = s->pipeline.isend(output, next);
  co_await tutti::when_all(receiving, sending);  // the last stage sends to itself
  for (std::size_t k = 0; rank == last && k < width; ++k) s->loss += std::pow(g[k] -= 0.5F, 2) / 2;
  for (std::size_t j = n; j-- > 0;) {
    float& slope = g[j % width];
    slope *= 1 - x[j + width] * x[j + width];
    s->change[j] -= 0.1F * slope * x[j];
    slope *= s->weights[j];
  }
  if (rank > 0) co_await s->pipeline.send(g, rank - 1);
  co_await s->in_flight.receive();
}

// All ranks get all layers, each from a rank that holds it, as of the last step that all have made.
tutti::task<> agree(tutti::communicator world, model* m, std::filesystem::path checkpoint) {
  int step = m->step;
  co_await world.all_reduce(step, tutti::min);
  if (m->step == step + 1) {
    m->weights = m->before;
    m->step = step;
  }
  bool lost = false;
  for (int l = 0; l < layers; ++l) {
    const bool holds = m->step == step && m->first <= l && l < m->last;
    int owner = holds ? world.rank() : world.size();
    co_await world.all_reduce(owner, tutti::min);
    lost = lost || owner == world.size();
    if (owner < world.size()) co_await world.broadcast(m->layers_from(l, l + 1), owner);
  }
  if (lost) {
    if (world.rank() == 0) {
      std::ifstream file(checkpoint, std::ios::binary);
      file.exceptions(std::ios::failbit | std::ios::badbit);
      file.read(reinterpret_cast<char*>(&step), sizeof step);
      file.read(reinterpret_cast<char*>(m->weights.data()), layers * width * sizeof(float));
    }
    co_await world.broadcast(step, 0);
    co_await world.broadcast(m->weights, 0);
  }
  m->step = step;
  m->first = 0;
  m->last = layers;
  if (world.rank() == 0)
    std::printf("step %d, from %s\n", step, lost ? "the checkpoint" : "the memory of the ranks");
}

tutti::task<> save(tutti::communicator pipeline, model* m, std::filesystem::path checkpoint) {
  std::vector<float> all(pipeline.rank() == 0 ? m->weights.size() : 0);
  co_await pipeline.gather(m->layers_from(m->first, m->last), all, 0);
  if (pipeline.rank() != 0) co_return;
  std::string content(sizeof m->step + layers * width * sizeof(float), '\0');
  std::memcpy(content.data(), &m->step, sizeof m->step);
  std::memcpy(content.data() + sizeof m->step, all.data(), all.size() * sizeof(float));
  const auto write = [&] { tutti::replace_file(checkpoint, content); };
  co_await tutti::compute(write);
}

tutti::task<> train(tutti::communicator world, model* m, int fatal_step, std::filesystem::path checkpoint) {
  co_await agree(world, m, checkpoint);
  const int stages = std::min(2, world.size()), replicas = world.size() / stages, me = world.rank();
  const bool spare = me >= stages * replicas;
  tutti::communicator pipeline = co_await world.split(spare ? -1 : me / stages, me);
  tutti::communicator copies = co_await world.split(spare ? -1 : me % stages, me);
  m->first = spare ? 0 : layers / stages * (me % stages);
  m->last = spare ? 0 : m->first + layers / stages;
  if (me == 0) std::printf("a grid of %d replicas of %d stages\n", replicas, stages);
  std::optional<std::chrono::steady_clock::time_point> last_step = m->stepped;  // before the failure
  for (; m->step < steps; ++m->step) {
    if (m->step % steps_per_checkpoint == 0 && me < stages) co_await save(pipeline, m, checkpoint);
    const std::span<float> weights = m->layers_from(m->first, m->last);
    stage s{pipeline, weights, std::vector<float>(weights.size()),
            tutti::channel<int>(static_cast<std::size_t>(spare ? 1 : stages - pipeline.rank()))};
    if (!spare) {
      tutti::scope passes;
      for (int i = me / stages; i < micro_batches; i += replicas)
        passes.spawn(pass(&s, 0.1F * static_cast<float>(i + 1)));
      if (m->step == fatal_step) ::kill(::getpid(), SIGKILL);
      co_await passes.join();
      co_await copies.all_reduce(s.change, tutti::sum);
    }
    co_await world.all_reduce(s.loss, tutti::sum);  // no rank steps before all have their gradients
    m->before = m->weights;
    for (std::size_t j = 0; j < weights.size(); ++j) weights[j] += s.change[j];
    m->stepped = tutti::now();
    if (me == 0) std::printf("step %d: loss %.5f\n", m->step, s.loss);
    if (me == 0 && last_step)
      std::printf("%.1f ms after the step before\n",
                  std::chrono::duration<double, std::milli>(*m->stepped - *last_step).count());
    last_step.reset();
  }
}

tutti::task<> program(tutti::communicator world, std::vector<std::string> arguments) {
  model m;
  int fatal_step = -1;
  std::string checkpoint = "grid.checkpoint";
  for (const std::string& a : arguments) {
    const std::size_t at = a.find('@');
    if (at == a.npos) checkpoint = a;
    if (at != a.npos && std::stoi(a) == world.rank()) fatal_step = std::stoi(a.substr(at + 1));
  }
  for (;;) {
    const auto ended = co_await tutti::as_result(train(world, &m, fatal_step, checkpoint));
    if (!ended.error) co_return;
    std::printf("%s\n", ended.message.c_str());
    if (ended.error.category() != tutti::error_category())
      throw std::system_error(ended.error, ended.message);  // not of communication: of the checkpoint
    world = co_await world.shrink();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a rank prints before it is killed is seen
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return tutti::run([&](tutti::communicator world) { return program(world, arguments); });
}
