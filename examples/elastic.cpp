// SPDX-License-Identifier: Apache-2.0
// Training while nodes join and leave. With one secret (TUTTI_SECRET), on each node at any time:
//   tutti-run -n 2 --nnodes 1:4 --node-rank 0 --master HOST:29500 elastic 50     on HOST; 50 ms between steps
//   tutti-run -n 2 --nnodes 1:4 --master HOST:29500 elastic 50                   elsewhere
// A node that joins is admitted at the next step; the others go on without a node that leaves. Every step
// averages over the same batch, whatever the number of ranks.
#include "train_digits/dataset.hpp"
#include "train_digits/perceptron.hpp"
#include "train_digits/sgd.hpp"

#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace {
using namespace train_digits;

constexpr std::size_t batch_size = 64;
constexpr long epochs = 15;

struct trainer {
  tutti::communicator world;
  data_split data;
  std::chrono::milliseconds pause;  // after each step
  perceptron<float> network{{data.training.pixels_per_image(), 128, classes}, 1};
  sgd optimiser{network.parameters().size(), 0.05f, 0.9f};
  batch mine{};
  long step = 0;

  // All ranks take the state of the most advanced rank.
  tutti::task<> catch_up() {
    long furthest = step;
    co_await world.all_reduce(furthest, tutti::max);
    int who = step == furthest ? world.rank() : world.size();
    co_await world.all_reduce(who, tutti::min);
    co_await world.broadcast(network.parameters(), who);
    co_await world.broadcast(optimiser.velocity(), who);
    step = furthest;
    if (world.rank() == 0) std::printf("step %ld on %d ranks\n", step, world.size());
    std::fflush(stdout);
  }

  // Completes with true at the end of the training, or with false if nodes wait to join.
  tutti::task<bool> train() {
    tutti::shared_batches batches(data.training.size(), batch_size, world.rank(), world.size(), 1);
    const auto steps = static_cast<long>(batches.steps());
    for (; step < epochs * steps; ++step) {
      int waiting = tutti::newcomers(world);
      co_await world.all_reduce(waiting, tutti::max);
      if (waiting > 0) co_return false;
      batches.begin_epoch(static_cast<std::uint64_t>(step / steps));
      const auto at = static_cast<std::size_t>(step % steps);
      gather(data.training, batches.mine(at), mine);
      network.backward(mine.images, mine.labels, 1.0f / static_cast<float>(batches.all(at).size()));
      co_await world.all_reduce(network.gradient(), tutti::sum);
      optimiser.step(network.parameters(), network.gradient());
      co_await tutti::sleep_for(pause);
    }
    co_return true;
  }

  tutti::task<bool> finish() {
    std::vector<std::uint32_t> all(data.test.size());
    std::iota(all.begin(), all.end(), 0u);
    gather(data.test, all, mine);
    const auto correct = static_cast<double>(network.count_correct(mine.images, mine.labels));
    const tutti::replica_check check = co_await tutti::compare_replicas(world, network.parameters());
    if (world.rank() == 0)
      std::printf("done on %d ranks: %.2f %% of the test images are read right, replicas identical: %s\n",
                  world.size(), 100.0 * correct / static_cast<double>(all.size()),
                  check.agree() ? "yes" : "NO");
    co_return check.agree();
  }

  tutti::task<int> run() {
    for (bool changed = false;; changed = true) {
      std::optional<tutti::error> trouble;
      try {
        if (changed) world = co_await world.rejoin();
        co_await catch_up();
        const bool done = co_await train();
        if (!done) continue;
        const bool same = co_await finish();
        co_return same ? 0 : 1;
      } catch (const tutti::error& e) {
        trouble = e;
      }
      if (trouble->code() != tutti::errc::peer_failed && trouble->code() != tutti::errc::communicator_failed)
        throw *trouble;
      std::printf("%s\n", trouble->what());
    }
  }
};

tutti::task<int> train(tutti::communicator world, data_split data, int pause_ms) {
  trainer all{std::move(world), std::move(data), std::chrono::milliseconds(pause_ms)};
  const int code = co_await all.run();
  co_return code;
}
}  // namespace

int main(int argc, char** argv) {
  const int pause_ms = argc > 1 ? std::atoi(argv[1]) : 0;
  try {
    data_split data = load_digits(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz");
    return tutti::run([&](tutti::communicator world) { return train(world, std::move(data), pause_ms); });
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "elastic: %s\n", failure.what());
    return 1;
  }
}
