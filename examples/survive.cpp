// SPDX-License-Identifier: Apache-2.0
// Training that continues when ranks die.
//   tutti-run -n 4 --on-failure continue survive                          then kill -9 a rank
//   tutti-run -n 4 --on-failure continue survive --kill 2@300             rank 2 kills itself at step 300
//   tutti-run -n 4 --on-failure restart --max-restarts 3 survive --rejoin --kill 2@300
// The first two continue with the remaining ranks; the last with all ranks again, one of them a new process.
#include "train_digits/dataset.hpp"
#include "train_digits/perceptron.hpp"
#include "train_digits/sgd.hpp"

#include <tutti/train.hpp>
#include <tutti/tutti.hpp>

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace train_digits;

constexpr std::size_t batch_size = 64;
constexpr long epochs = 30;
constexpr long epochs_per_report = 5;

struct arguments {
  bool rejoin = false;
  int victim = -1;  // the rank that kills itself...
  long at = -1;     // ...before this step
};

class trainer {
 public:
  trainer(tutti::communicator world, arguments how, data_split data)
      : world_(std::move(world)),
        how_(how),
        me_(world_.rank()),
        data_(std::move(data)),
        network_({data_.training.pixels_per_image(), 128, classes}, 1),
        optimiser_(network_.parameters().size(), 0.05f, 0.9f) {}

  tutti::task<int> run() {
    bool broken = false;
    for (;;) {
      std::optional<tutti::error> trouble;
      try {
        if (broken) co_await mend();
        broken = false;
        co_await catch_up();
        co_await train();
        const bool same = co_await report_end();
        co_return same ? 0 : 1;
      } catch (const tutti::error& e) {
        trouble = e;
      }
      // A failure of another rank is handled the same way whatever its cause.
      if (trouble->code() != tutti::errc::peer_failed && trouble->code() != tutti::errc::communicator_failed)
        throw *trouble;
      std::printf("rank %d, step %ld: %s\n", me_, step_, trouble->what());
      std::fflush(stdout);
      broken = true;
    }
  }

 private:
  tutti::task<> mend() {
    if (how_.rejoin) {
      world_ = co_await world_.rejoin();
    } else {
      world_ = co_await world_.shrink();
    }
    if (world_.rank() == 0) std::printf("going on with %d ranks\n", world_.size());
  }

  // Ranks may be a step apart, and a new process is at step 0. All take the state of the most advanced one.
  tutti::task<> catch_up() {
    long furthest = step_;
    co_await world_.all_reduce(furthest, tutti::max);
    int who = step_ == furthest ? world_.rank() : world_.size();
    co_await world_.all_reduce(who, tutti::min);
    co_await world_.broadcast(network_.parameters(), who);
    co_await world_.broadcast(optimiser_.velocity(), who);
    step_ = furthest;
    batches_.emplace(data_.training.size(), batch_size, world_.rank(), world_.size(), 1);
    steps_per_epoch_ = static_cast<long>(batches_->steps());
    batches_->begin_epoch(static_cast<std::uint64_t>(step_ / steps_per_epoch_));
  }

  tutti::task<> train() {
    while (step_ < epochs * steps_per_epoch_) {
      if (me_ == how_.victim && step_ == how_.at) ::kill(::getpid(), SIGKILL);
      const long step = step_ % steps_per_epoch_;
      const auto at = static_cast<std::size_t>(step);
      gather(data_.training, batches_->mine(at), batch_);
      network_.backward(batch_.images, batch_.labels, 1.0f / static_cast<float>(batches_->all(at).size()));
      co_await world_.all_reduce(network_.gradient(), tutti::sum);
      optimiser_.step(network_.parameters(), network_.gradient());
      ++step_;
      if (step + 1 < steps_per_epoch_) continue;
      const long epoch = step_ / steps_per_epoch_;
      batches_->begin_epoch(static_cast<std::uint64_t>(epoch));
      if (epoch % epochs_per_report == 0) co_await report(epoch);
    }
  }

  tutti::task<> report(long epoch) {
    std::vector<std::uint32_t> all(data_.test.size());
    std::iota(all.begin(), all.end(), 0u);
    const auto mine = tutti::share_of(std::span<const std::uint32_t>(all), world_.rank(), world_.size());
    gather(data_.test, mine, batch_);
    auto correct = static_cast<long>(network_.count_correct(batch_.images, batch_.labels));
    co_await world_.all_reduce(correct, tutti::sum);
    if (world_.rank() == 0)
      std::printf("epoch %ld/%ld on %d ranks: %.2f %% of the test images are read right\n", epoch, epochs,
                  world_.size(), 100.0 * static_cast<double>(correct) / static_cast<double>(all.size()));
    std::fflush(stdout);
  }

  tutti::task<bool> report_end() {
    const tutti::replica_check check = co_await tutti::compare_replicas(world_, network_.parameters());
    const bool same = check.agree();
    if (world_.rank() == 0) std::printf("replicas identical: %s\n", same ? "yes" : "NO");
    co_return same;
  }

  tutti::communicator world_;
  arguments how_;
  const int me_;  // its rank in the job's first world
  data_split data_;
  perceptron<float> network_;
  sgd optimiser_;
  std::optional<tutti::shared_batches> batches_;
  batch batch_;
  long step_ = 0, steps_per_epoch_ = 1;
};

tutti::task<int> train(tutti::communicator world, arguments how, data_split data) {
  trainer all(std::move(world), how, std::move(data));
  const int code = co_await all.run();
  co_return code;
}

}  // namespace

int main(int argc, char** argv) {
  arguments how;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rejoin") == 0) {
      how.rejoin = true;
    } else if (std::strcmp(argv[i], "--kill") != 0 || ++i == argc ||
               std::sscanf(argv[i], "%d@%ld", &how.victim, &how.at) != 2) {
      std::fprintf(stderr, "usage: survive [--rejoin] [--kill RANK@STEP]\n");
      return 2;
    }
  }
  // A restarted process must not kill itself again.
  const char* const restarts = std::getenv("TUTTI_RESTART_COUNT");
  if (restarts != nullptr && std::atoi(restarts) > 0) how.victim = -1;
  data_split data;
  try {
    data = load_digits(TUTTI_EXAMPLE_DATA_DIR "/digits.csv.gz");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "survive: %s\n", failure.what());
    return 1;
  }
  return tutti::run([&](tutti::communicator world) { return train(std::move(world), how, std::move(data)); });
}
