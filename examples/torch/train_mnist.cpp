// SPDX-License-Identifier: Apache-2.0
// The PyTorch tutorial's network and training loop, in PyTorch's C++ library, on all ranks.
//   tutti-run -n 4 torch_train_mnist [--data path/to/mnist] [--epochs 10] [--losses 1]
// Without MNIST it learns the 8 x 8 digits that ship with the examples, scaled to 28 x 28.
#include <torch/torch.h>

#include "train_digits/dataset.hpp"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <tutti/torch.hpp>
#include <tutti/train.hpp>
#include <vector>

namespace F = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(dropout(conv2(x)), 2));
    x = torch::relu(fc1(x.view({-1, 320})));
    x = torch::dropout(x, 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 10, 5)}, conv2{torch::nn::Conv2dOptions(10, 20, 5)};
  torch::nn::Dropout2d dropout{register_module("dropout", torch::nn::Dropout2d())};
  torch::nn::Linear fc1{320, 50}, fc2{50, 10};
};
TORCH_MODULE(Net);

struct images {
  explicit images(const train_digits::dataset& d) {
    const auto n = static_cast<std::int64_t>(d.size());
    auto* const bytes = const_cast<std::uint8_t*>(d.pixels.data());
    data = torch::from_blob(bytes, {n, 1, d.rows, d.columns}, torch::kByte).to(torch::kFloat) / d.darkest;
    if (d.rows != 28)
      data = F::interpolate(
          data, F::InterpolateFuncOptions().size(std::vector<std::int64_t>{28, 28}).mode(torch::kArea));
    data = (data - 0.1307) / 0.3081;
    target = torch::from_blob(const_cast<std::uint8_t*>(d.labels.data()), {n}, torch::kByte).to(torch::kLong);
  }
  torch::Tensor data, target;
};

tutti::task<> train(tutti::communicator world, train_digits::data_split digits, int epochs, bool losses) {
  const int me = world.rank(), ranks = world.size();
  torch::set_num_threads(1);  // the ranks share the processor
  torch::manual_seed(1234 + me);
  const images all(digits.training), test(digits.test);
  Net model;
  auto ddp = co_await tutti::torch::data_parallel::create(world, model);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  const std::int64_t batch = 128 / ranks, steps = all.target.size(0) / (batch * ranks);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    torch::Tensor order = torch::randperm(all.target.size(0));
    co_await world.broadcast(order, 0);
    double epoch_loss = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      const torch::Tensor mine = order.narrow(0, (step * ranks + me) * batch, batch);
      optimizer.zero_grad();
      const auto backward = [&] {
        const torch::Tensor loss =
            torch::nll_loss(model(all.data.index_select(0, mine)), all.target.index_select(0, mine));
        epoch_loss += loss.item<double>();
        if (losses) std::printf("rank %d loss %.7f\n", me, loss.item<double>());
        loss.backward();
      };
      co_await tutti::compute(backward);
      co_await ddp.reduced();
      optimizer.step();
    }
    std::printf("Rank %d, epoch %d: %.4f\n", me, epoch, epoch_loss / static_cast<double>(steps));
  }

  model->eval();
  const torch::NoGradGuard plain;
  const torch::Tensor right = model(test.data).argmax(1).eq(test.target).sum();
  if (me == 0)
    std::printf("accuracy on %ld test images: %.1f %%\n", static_cast<long>(test.target.size(0)),
                100.0 * right.item<double>() / static_cast<double>(test.target.size(0)));
}

int main(int argc, char** argv) {
  std::string data;
  int epochs = 10;
  bool losses = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--data") data = argv[i + 1];
    if (std::string(argv[i]) == "--epochs") epochs = std::stoi(argv[i + 1]);
    if (std::string(argv[i]) == "--losses") losses = true;
  }
  const auto program = [&](tutti::communicator world) {
    return train(world,
                 data.empty() ? train_digits::load_digits(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz")
                              : train_digits::load_mnist(data),
                 epochs, losses);
  };
  return tutti::run(program);
}
