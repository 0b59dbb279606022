// SPDX-License-Identifier: Apache-2.0
// A small transformer learns sonnets character by character, in stages on several ranks.
//   tutti-run -n 4 torch_pipeline                              four stages
//   tutti-run -n 4 torch_pipeline --stages 2 --batches 16      two replicas of two stages, 16 micro-batches
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <tutti/torch.hpp>
#include <tutti/trace.hpp>
#include <tutti/tutti.hpp>
#include <vector>

using torch::Tensor;
constexpr std::int64_t layers = 8, width = 64, heads = 4, length = 64, rows = 4, characters = 128;

struct EmbedImpl : torch::nn::Module {
  Tensor forward(const Tensor& text) { return character(text) + position(torch::arange(length)); }
  torch::nn::Embedding character = register_module("character", torch::nn::Embedding(characters, width));
  torch::nn::Embedding position = register_module("position", torch::nn::Embedding(length, width));
};
TORCH_MODULE(Embed);

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm norm(const char* name) {
    return register_module(name, torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  torch::nn::Linear linear(const char* name, std::int64_t in, std::int64_t out) {
    return register_module(name, torch::nn::Linear(in, out));
  }
  Tensor forward(const Tensor& in) {
    std::vector<Tensor> of_heads = qkv(norm1(in)).chunk(3, -1);
    for (Tensor& t : of_heads) t = t.view({-1, length, heads, width / heads}).transpose(1, 2);
    const Tensor seen = at::scaled_dot_product_attention(of_heads[0], of_heads[1], of_heads[2], {}, 0, true);
    const Tensor x = in + mix(seen.transpose(1, 2).reshape({-1, length, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }
  torch::nn::LayerNorm norm1 = norm("norm1"), norm2 = norm("norm2");
  torch::nn::Linear qkv = linear("qkv", width, 3 * width), mix = linear("mix", width, width);
  torch::nn::Linear up = linear("up", width, 4 * width), down = linear("down", 4 * width, width);
};
TORCH_MODULE(Block);

struct stage {
  tutti::communicator pipeline;
  int rank = pipeline.rank(), last = pipeline.size() - 1;
  torch::nn::Sequential part{};
  tutti::channel<int> in_flight{static_cast<std::size_t>(last - rank + 1)}, turn{1};
  double loss = 0, busy_ms = 0;
};

// All ranks draw the weights of the whole model, and keep those of their stage.
void draw(stage* s) {
  torch::manual_seed(1);
  const auto keep = [s](std::int64_t layer, const auto& module) {
    if (layer * (s->last + 1) / layers == s->rank) s->part->push_back(module);
  };
  keep(0, Embed());
  for (std::int64_t l = 1; l + 1 < layers; ++l) keep(l, Block());
  keep(layers - 1, torch::nn::Linear(width, characters));
}

// On the compute pool, one pass at a time.
template <class F>
tutti::task<> compute(stage* s, const char* name, const F* pass) {
  co_await s->turn.send(0);
  const tutti::trace_span span(name);
  const auto start = tutti::now();
  co_await tutti::compute(*pass);
  s->busy_ms += std::chrono::duration<double, std::milli>(tutti::now() - start).count();
  co_await s->turn.receive();
}

// `text` has one character more than the stage sees: the next of each.
tutti::task<> micro_batch(stage* s, Tensor text, double share) {
  co_await s->in_flight.send(0);
  Tensor x = text.narrow(1, 0, length), y, gradient;
  if (s->rank > 0) {
    x = torch::empty({rows, length, width});
    co_await s->pipeline.recv(x, s->rank - 1);
    x.requires_grad_();
  }
  const auto forward = [&] {
    y = s->part->forward(x);
    if (s->rank == s->last)
      y = torch::cross_entropy_loss(y.view({-1, characters}), text.narrow(1, 1, length).reshape(-1)) * share;
  };
  co_await compute(s, "forward", &forward);
  if (s->rank < s->last) {
    gradient = torch::empty_like(y);
    tutti::request receiving = s->pipeline.irecv(gradient, s->rank + 1);
    tutti::request sending = s->pipeline.isend(y.detach(), s->rank + 1);
    co_await tutti::when_all(receiving, sending);
  } else {
    s->loss += y.item<double>();
  }
  const auto backward = [&] { y.backward(gradient); };
  co_await compute(s, "backward", &backward);
  if (s->rank > 0) co_await s->pipeline.send(x.grad(), s->rank - 1);
  co_await s->in_flight.receive();
}

tutti::task<> train(tutti::communicator world, int stages, int batches) {
  torch::set_num_threads(1);  // the ranks share the processor
  if (stages == 0) stages = world.size();
  if (world.size() % stages != 0) throw std::invalid_argument("--stages: the ranks are no multiple of it");
  const int replicas = world.size() / stages, replica = world.rank() / stages;
  tutti::communicator pipeline = co_await world.split(replica, world.rank());
  const tutti::communicator copies = co_await world.split(world.rank() % stages, world.rank());
  stage s{pipeline};
  draw(&s);
  torch::optim::SGD optimiser(s.part->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::ifstream file(TUTTI_EXAMPLE_DATA_DIR "/sonnets.txt");
  const std::vector<std::uint8_t> sonnets{std::istreambuf_iterator<char>(file), {}};
  const Tensor lines = torch::tensor(sonnets).to(torch::kLong).unfold(0, length + 1, 7);  // which overlap

  for (int step = 0; step < 6; ++step) {
    s.loss = s.busy_ms = 0;
    optimiser.zero_grad();
    co_await world.barrier();
    const auto start = tutti::now();
    tutti::scope passes;
    for (std::int64_t i = replica; i < batches; i += replicas) {
      const std::int64_t first = (step * batches + i) * rows % (lines.size(0) - rows);
      passes.spawn(micro_batch(&s, lines.narrow(0, first, rows), 1.0 / batches));
    }
    co_await passes.join();
    for (const Tensor& p : s.part->parameters()) co_await copies.all_reduce(p.grad(), tutti::sum);
    optimiser.step();
    co_await world.all_reduce(s.loss, tutti::sum);
    double busy = s.busy_ms / std::chrono::duration<double, std::milli>(tutti::now() - start).count();
    co_await world.all_reduce(busy, tutti::avg);
    if (world.rank() == 0) std::printf("step %d: loss %.6f, in bubbles %.2f\n", step, s.loss, 1 - busy);
  }
}

int main(int argc, char** argv) {
  int stages = 0, batches = 8;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--stages") stages = std::stoi(argv[i + 1]);
    if (std::string(argv[i]) == "--batches") batches = std::stoi(argv[i + 1]);
  }
  return tutti::run([=](tutti::communicator world) { return train(world, stages, batches); });
}
