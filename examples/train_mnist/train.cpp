// SPDX-License-Identifier: Apache-2.0
// One step: the backward pass on the compute pool, whose gradients are averaged as they come; then the
// optimiser, alike on every rank.
#include "train_mnist/train.hpp"

#include "train_digits/progress.hpp"
#include "train_digits/sgd.hpp"
#include "train_mnist/checkpoint.hpp"
#include "train_mnist/network.hpp"

#include <tutti/track.hpp>
#include <tutti/train.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace train_mnist {
namespace {

using train_digits::text;
using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

std::shared_ptr<tutti::gradient_hook> hook_named(const std::string& name) {
  if (name == "float16") return tutti::float16_hook();
  if (name == "bfloat16") return tutti::bfloat16_hook();
  if (name == "low-rank") return tutti::low_rank_hook();
  return nullptr;
}

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

class trainer {
 public:
  trainer(tutti::communicator world, training_options options, train_digits::data_split data)
      : world_(std::move(world)),
        options_(std::move(options)),
        data_(std::move(data)),
        network_(options_.seed),
        optimiser_(network_.parameters().size(), options_.rate, options_.momentum),
        batches_(data_.training.size(), options_.batch, world_.rank(), world_.size(), options_.seed),
        lines_(world_.rank() == 0 ? stdout : nullptr, false) {}

  tutti::task<int> run() {
    if (!options_.track_in.empty()) co_await open_log();
    const int code = co_await train_all();
    if (log_) co_await log_.finish();
    co_return code;
  }

 private:
  tutti::task<> open_log() {
    tutti::track::options o;
    o.directory = options_.track_in;
    o.system_metrics = std::chrono::seconds(1);
    log_ = co_await tutti::track::open(world_, o);
    tutti::track::hyperparameter_map parameters;
    parameters.insert_or_assign("learning rate", options_.rate);
    parameters.insert_or_assign("momentum", options_.momentum);
    parameters.insert_or_assign("batch", options_.batch);
    parameters.insert_or_assign("seed", options_.seed);
    parameters.insert_or_assign("averaging",
                                options_.when == averaging::overlapped ? "overlapped" : "sequential");
    parameters.insert_or_assign("hook", options_.hook);
    parameters.insert_or_assign("data", data_.name);
    parameters.insert_or_assign("images of this rank's first batch", batches_.mine(0).size());
    log_.hyperparameters(parameters);
    lines_.line("tracked in " + log_.directory().string());
  }

  tutti::task<int> train_all() {
    if (data_.training.size() < static_cast<std::size_t>(world_.size())) {
      if (world_.rank() == 0)
        std::fprintf(stderr,
                     "train_mnist: %s has %zu images to train on, too few for %d ranks: use fewer ranks\n",
                     data_.name.c_str(), data_.training.size(), world_.size());
      co_return 1;
    }
    lines_.line(text("%s: %zu images to train on, %zu to test; batches of %zu on %d %s", data_.name.c_str(),
                     data_.training.size(), data_.test.size(), options_.batch, world_.size(),
                     world_.size() == 1 ? "rank" : "ranks"));
    std::vector<tutti::gradient_view> gradients;
    for (const tensor& t : network_.layout())
      gradients.emplace_back(network_.gradient().subspan(t.begin, t.size), t.rows);
    tutti::data_parallel_options o;
    if (options_.bucket_kib > 0) o.first_bucket_bytes = o.bucket_bytes = options_.bucket_kib << 10;
    o.hook = hook_named(options_.hook);
    o.sum = true;  // each rank weighs its samples by those of all
    parallel_ = co_await tutti::data_parallel::create(world_, gradients, o);

    const bool can_begin = co_await begin();
    if (!can_begin) co_return 1;
    for (int epoch = first_epoch_; epoch <= options_.epochs; ++epoch) {
      const bool good = co_await train_epoch(epoch);
      if (!good) co_return 1;
    }
    lines_.line(text("test accuracy %.2f %% (of %zu images)", accuracy_percent_, data_.test.size()));
    report_time();
    if (options_.compare > 0) co_await compare_ways();
    const tutti::replica_check check = co_await tutti::compare_replicas(world_, network_.parameters());
    lines_.line(text("replicas identical: %s (hash %016llx)", check.agree() ? "yes" : "NO",
                     static_cast<unsigned long long>(check.hash)));
    co_return check.agree() ? 0 : 1;
  }

  // The initial state of all is rank 0's, from the seed or from its checkpoint: the others need not see the
  // file.
  tutti::task<bool> begin() {
    std::array<std::int64_t, 2> start{1, 1};  // whether there is one, and the first epoch
    if (!options_.resume_from.empty() && world_.rank() == 0) {
      try {
        const checkpoint from = load(options_.resume_from, network_.parameters().size());
        if (from.seed != options_.seed)
          throw std::runtime_error(options_.resume_from + ": was trained with --seed " +
                                   std::to_string(from.seed));
        std::ranges::copy(from.parameters, network_.parameters().begin());
        std::ranges::copy(from.velocity, optimiser_.velocity().begin());
        start[1] = static_cast<std::int64_t>(from.epoch) + 1;
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "train_mnist: %s\n", failure.what());
        start[0] = 0;
      }
    }
    co_await world_.broadcast(start, 0);
    if (start[0] == 0) co_return false;
    first_epoch_ = static_cast<int>(start[1]);
    const std::vector<std::span<float>> state{network_.parameters(), optimiser_.velocity()};
    co_await parallel_.broadcast(state);
    if (first_epoch_ > 1)
      lines_.line(text("goes on after epoch %d of %s", first_epoch_ - 1, options_.resume_from.c_str()));
    co_return true;
  }

  void read_batch(const train_digits::dataset& from, std::span<const std::uint32_t> images) {
    gather(from, images, batch_);
    batch_.images.array() = (batch_.images.array() - 0.1307F) / 0.3081F;  // mean and deviation of MNIST
  }

  // One step; the sum of the losses of this rank's samples.
  tutti::task<double> train_step(std::uint64_t epoch, std::size_t step, averaging when) {
    const auto mine = batches_.mine(step);
    const float weight = 1.0F / static_cast<float>(batches_.all(step).size());
    const auto start = clock::now();
    const auto backward = [this, epoch, mine, weight, when] {
      read_batch(data_.training, mine);
      return network_.backward(batch_.images, batch_.labels, weight, {options_.seed, epoch, mine},
                               [this, when](std::size_t i) {
                                 if (when == averaging::overlapped) parallel_.ready(i);
                               });
    };
    const double loss = co_await tutti::compute(backward);
    const double compute_seconds = seconds_since(start);
    co_await parallel_.reduced();
    const auto averaged = clock::now();
    optimiser_.step(network_.parameters(), network_.gradient());

    const tutti::averaging_times times = parallel_.last();
    compute_seconds_ += compute_seconds + seconds_since(averaged);
    communication_seconds_ += times.communication_seconds;
    exposed_seconds_ += times.exposed_seconds;
    if (log_ && !comparing_)
      co_await log_step(epoch, step, loss / static_cast<double>(std::max<std::size_t>(mine.size(), 1)),
                        compute_seconds, times);
    co_return loss;
  }

  // What the fastest had to wait is communication; the rest was for the slowest rank.
  tutti::task<> log_step(std::uint64_t epoch, std::size_t step, double loss, double compute_seconds,
                         tutti::averaging_times times) {
    double least = times.exposed_seconds;
    co_await world_.all_reduce(least, tutti::min);
    const auto number = static_cast<std::int64_t>((epoch - 1) * batches_.steps() + step);
    log_.scalar("loss", number, loss);
    tutti::track::step_times spent;
    spent.compute_seconds = compute_seconds;
    spent.communication_seconds = least;
    spent.waiting_seconds = times.exposed_seconds - least;
    spent.hidden_seconds = std::max(0.0, times.communication_seconds - times.exposed_seconds);
    spent.bytes = times.bytes;
    log_.times(number, spent);
  }

  // False, on all ranks: the training has diverged, or its checkpoint could not be written.
  tutti::task<bool> train_epoch(int epoch) {
    batches_.begin_epoch(static_cast<std::uint64_t>(epoch));
    double loss = 0;
    std::size_t images = 0;
    for (std::size_t step = 0; step < batches_.steps(); ++step) {
      images += batches_.mine(step).size();
      const double of_step = co_await train_step(static_cast<std::uint64_t>(epoch), step, options_.when);
      loss += of_step;
    }
    steps_ += batches_.steps();
    std::printf("Rank %d, epoch %d: %.4f\n", world_.rank(), epoch,
                loss / static_cast<double>(std::max<std::size_t>(images, 1)));
    std::fflush(stdout);
    co_await world_.all_reduce(loss, tutti::sum);
    loss /= static_cast<double>(data_.training.size());
    co_await measure_accuracy(epoch);
    lines_.line(text("epoch %d: loss %.6f, test accuracy %.2f %%", epoch, loss, accuracy_percent_));
    if (!std::isfinite(loss)) {
      lines_.line(text("the training diverged: try a --lr below %g", static_cast<double>(options_.rate)));
      co_return false;
    }
    const bool saved = co_await save_checkpoint(epoch);
    co_return saved;
  }

  tutti::task<bool> save_checkpoint(int epoch) {
    if (options_.save_to.empty()) co_return true;
    std::int32_t good = 1;
    if (world_.rank() == 0) {
      checkpoint now;
      now.epoch = static_cast<std::uint64_t>(epoch);
      now.seed = options_.seed;
      now.parameters.assign(network_.parameters().begin(), network_.parameters().end());
      now.velocity.assign(optimiser_.velocity().begin(), optimiser_.velocity().end());
      try {
        save(now, options_.save_to);
        if (epoch == options_.epochs) log_.artifact("checkpoint", std::filesystem::path(options_.save_to));
      } catch (const std::exception& failure) {
        std::fprintf(stderr, "train_mnist: %s\n", failure.what());
        good = 0;
      }
    }
    co_await world_.broadcast(good, 0);
    co_return good == 1;
  }

  tutti::task<> measure_accuracy(int epoch) {
    std::vector<std::uint32_t> all(data_.test.size());
    std::iota(all.begin(), all.end(), 0U);
    const std::span<const std::uint32_t> mine =
        tutti::share_of(std::span<const std::uint32_t>(all), world_.rank(), world_.size());
    const auto count = [this, mine] {
      constexpr std::size_t at_once = 256;
      std::int64_t correct = 0;
      for (std::size_t part = 0; part < tutti::batches_in(mine.size(), at_once); ++part) {
        read_batch(data_.test, tutti::batch_of(mine, at_once, part));
        correct += static_cast<std::int64_t>(network_.count_correct(batch_.images, batch_.labels));
      }
      return correct;
    };
    std::int64_t correct = co_await tutti::compute(count);
    co_await world_.all_reduce(correct, tutti::sum);
    accuracy_percent_ = 100.0 * static_cast<double>(correct) / static_cast<double>(all.size());
    if (world_.rank() == 0) log_.scalar("test accuracy", epoch, accuracy_percent_);
  }

  void report_time() {
    if (steps_ == 0) return;
    const double per_step = 1e3 / static_cast<double>(steps_);
    lines_.line(
        text("per step of rank 0: compute %.3f ms, averaging %.3f ms, of which %.3f ms were waited for",
             compute_seconds_ * per_step, communication_seconds_ * per_step, exposed_seconds_ * per_step));
  }

  // The same steps either way, in turns, so that what else the machine does falls on both.
  tutti::task<> compare_ways() {
    comparing_ = true;
    std::array<std::vector<double>, 2> milliseconds;
    for (std::size_t i = 0; i < 2 * options_.compare; ++i) {
      const bool first_is_overlapped = i / 2 % 2 == 1;
      const averaging when =
          (i % 2 == 0) == first_is_overlapped ? averaging::overlapped : averaging::sequential;
      const std::size_t step =
          i / 2 % std::max<std::size_t>(batches_.steps() - 1, 1);  // not the last, which is smaller
      co_await world_.barrier();
      const auto start = clock::now();
      co_await train_step(1, step, when);
      co_await world_.barrier();
      milliseconds[when == averaging::sequential ? 0 : 1].push_back(1e3 * seconds_since(start));
    }
    std::vector<double> gains;
    for (std::size_t i = 0; i < options_.compare; ++i)
      gains.push_back(100 * (1 - milliseconds[1][i] / milliseconds[0][i]));
    const double sequential = median(milliseconds[0]), overlapped = median(milliseconds[1]);
    lines_.line(text("median step: sequential %.3f ms, overlapped %.3f ms; median gain of %zu pairs %+.1f %%",
                     sequential, overlapped, gains.size(), median(gains)));
  }

  tutti::communicator world_;
  training_options options_;
  train_digits::data_split data_;
  network<float> network_;
  train_digits::sgd optimiser_;
  tutti::shared_batches batches_;
  train_digits::batch batch_;
  tutti::data_parallel parallel_;
  tutti::track::log log_;
  train_digits::progress lines_;
  int first_epoch_ = 1;
  bool comparing_ = false;
  std::size_t steps_ = 0;
  double accuracy_percent_ = 0;
  double compute_seconds_ = 0, communication_seconds_ = 0, exposed_seconds_ = 0;
};

}  // namespace

tutti::task<int> train(tutti::communicator world, training_options options, train_digits::data_split data) {
  trainer all(std::move(world), std::move(options), std::move(data));
  const int exit_code = co_await all.run();
  co_return exit_code;
}

}  // namespace train_mnist
