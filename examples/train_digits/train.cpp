// SPDX-License-Identifier: Apache-2.0
// The training loop. Every rank computes the gradient of its share of each batch. One all_reduce turns it
// into the gradient of the whole batch, and every rank takes the same step.
#include "train_digits/train.hpp"

#include "train_digits/perceptron.hpp"
#include "train_digits/phase_clock.hpp"
#include "train_digits/progress.hpp"
#include "train_digits/sgd.hpp"

#include <tutti/train.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <utility>

namespace train_digits {
namespace {

std::vector<int> layer_sizes(const dataset& data, const std::vector<int>& hidden) {
  std::vector<int> sizes{data.pixels_per_image()};
  sizes.insert(sizes.end(), hidden.begin(), hidden.end());
  sizes.push_back(classes);
  return sizes;
}

class trainer {
 public:
  trainer(tutti::communicator world, training_options options, data_split data)
      : world_(std::move(world)),
        options_(std::move(options)),
        data_(std::move(data)),
        network_(layer_sizes(data_.training, options_.hidden), options_.seed),
        optimiser_(network_.parameters().size(), options_.rate, options_.momentum),
        batches_(data_.training.size(), options_.batch, world_.rank(), world_.size(), options_.seed),
        progress_(world_.rank() == 0 ? stdout : nullptr, output_is_terminal()) {}

  tutti::task<int> run() {
    describe();
    co_await world_.broadcast(network_.parameters(), 0);
    for (int epoch = 1; epoch <= options_.epochs; ++epoch) {
      const double loss = co_await train_epoch(epoch);
      progress_.line(text("epoch %3d/%d  loss %.6f", epoch, options_.epochs, loss));
      if (!std::isfinite(loss)) {
        progress_.line(text("the training diverged: try a --lr below %g, or a smaller --momentum",
                            static_cast<double>(options_.rate)));
        co_return 1;  // on every rank, because all have the same loss
      }
    }
    co_await report_accuracy();
    co_await report_time();
    const bool identical = co_await compare_replicas();
    co_return identical ? 0 : 1;
  }

 private:
  // Returns the mean loss of the epoch's samples, each with the parameters before its batch's step.
  tutti::task<double> train_epoch(int epoch) {
    batches_.begin_epoch(static_cast<std::uint64_t>(epoch));
    double loss = 0;
    std::size_t done = 0;
    for (std::size_t step = 0; step < batches_.steps(); ++step) {
      const std::size_t count = batches_.all(step).size();
      clock_.enter(phase::compute);
      gather(data_.training, batches_.mine(step), batch_);
      loss += network_.backward(batch_.images, batch_.labels, 1.0f / static_cast<float>(count));

      clock_.enter(phase::communication);
      co_await world_.all_reduce(network_.gradient(), tutti::sum);

      clock_.enter(phase::compute);
      optimiser_.step(network_.parameters(), network_.gradient());
      clock_.enter(phase::other);
      done += count;
      progress_.bar(text("epoch %3d/%d", epoch, options_.epochs), done, data_.training.size(), "images");
    }
    clock_.enter(phase::communication);
    co_await world_.all_reduce(loss, tutti::sum);
    clock_.enter(phase::other);
    co_return loss / static_cast<double>(data_.training.size());
  }

  tutti::task<> report_accuracy() {
    std::vector<std::uint32_t> all(data_.test.size());
    std::iota(all.begin(), all.end(), 0u);
    std::span<const std::uint32_t> mine =
        tutti::share_of(std::span<const std::uint32_t>(all), world_.rank(), world_.size());
    clock_.enter(phase::compute);
    std::int64_t correct = 0;
    while (!mine.empty()) {
      const auto part = mine.first(std::min<std::size_t>(mine.size(), 256));
      gather(data_.test, part, batch_);
      correct += static_cast<std::int64_t>(network_.count_correct(batch_.images, batch_.labels));
      mine = mine.subspan(part.size());
    }
    clock_.enter(phase::communication);
    co_await world_.all_reduce(correct, tutti::sum);
    clock_.enter(phase::other);
    progress_.line(text("test accuracy %.2f %% (%lld of %zu images)",
                        100.0 * static_cast<double>(correct) / static_cast<double>(all.size()),
                        static_cast<long long>(correct), all.size()));
  }

  // The communication time includes waiting for the slowest rank.
  tutti::task<> report_time() {
    std::array<double, 3> seconds = clock_.seconds();
    co_await world_.all_reduce(seconds, tutti::avg);
    const double total = std::max(std::reduce(seconds.begin(), seconds.end()), 1e-9);
    const auto share = [&](phase p) { return 100.0 * seconds[static_cast<std::size_t>(p)] / total; };
    progress_.line(
        text("time per rank %.3f s: compute %.3f s (%.1f %%), communication %.3f s (%.1f %%), other %.3f s "
             "(%.1f %%)",
             total, seconds[0], share(phase::compute), seconds[1], share(phase::communication), seconds[2],
             share(phase::other)));
  }

  tutti::task<bool> compare_replicas() {
    const tutti::replica_check check = co_await tutti::compare_replicas(world_, network_.parameters());
    const bool identical = check.agree();
    progress_.line(text("replicas identical: %s (hash %016llx)", identical ? "yes" : "NO",
                        static_cast<unsigned long long>(check.hash)));
    co_return identical;
  }

  void describe() {
    std::string shape;
    for (const int size : layer_sizes(data_.training, options_.hidden)) {
      if (!shape.empty()) shape += '-';
      shape += std::to_string(size);
    }
    progress_.line(text("%s: %zu images to train on, %zu to test", data_.name.c_str(), data_.training.size(),
                        data_.test.size()));
    progress_.line(text("network %s, %zu parameters; batches of %zu images on %d %s", shape.c_str(),
                        network_.parameters().size(), options_.batch, world_.size(),
                        world_.size() == 1 ? "rank" : "ranks"));
  }

  tutti::communicator world_;
  training_options options_;
  data_split data_;
  perceptron<float> network_;
  sgd optimiser_;
  tutti::shared_batches batches_;
  batch batch_;
  phase_clock clock_;
  progress progress_;
};

}  // namespace

tutti::task<int> train(tutti::communicator world, training_options options, data_split data) {
  trainer all(std::move(world), std::move(options), std::move(data));
  const int exit_code = co_await all.run();
  co_return exit_code;
}

}  // namespace train_digits
