// SPDX-License-Identifier: Apache-2.0
// The tutorial's loop. The gradients of the last layers are averaged while those of the first are computed.
// Then every rank takes the same step.
#include "train_mnist/train.hpp"

#include "train_mnist/compare.hpp"
#include "train_mnist/hooks.hpp"
#include "train_mnist/report.hpp"
#include "train_mnist/resume.hpp"
#include "train_mnist/tracking.hpp"
#include "train_mnist/training.hpp"

#include <utility>

namespace train_mnist {

tutti::task<step_result> train_step(training& t, int epoch, std::size_t step, averaging when) {
  const auto mine = t.batches.mine(step);
  const auto backward = [&t, mine, epoch, step, when] {
    t.read_batch(t.data.training, mine);
    const float weight = 1.0F / static_cast<float>(t.batches.all(step).size());
    const dropout left_out{t.options.seed, static_cast<std::uint64_t>(epoch), mine};
    return t.model.backward(t.batch.images, t.batch.labels, weight, left_out, [&t, when](std::size_t i) {
      if (when == averaging::overlapped) t.parallel.ready(i);
    });
  };
  step_result result;
  const auto start = clock::now();
  result.loss = co_await tutti::compute(backward);
  result.compute_seconds = seconds_since(start);
  co_await t.parallel.reduced();
  const auto averaged = clock::now();
  t.optimiser.step(t.model.parameters(), t.model.gradient());
  t.count_step(result.compute_seconds + seconds_since(averaged));
  co_return result;
}

static tutti::task<int> train_all(training& t) {
  if (!report_start(t)) co_return 1;
  co_await create_parallel(t);
  const int first_epoch = co_await resume(t);
  if (first_epoch == 0) co_return 1;
  for (int epoch = first_epoch; epoch <= t.options.epochs; ++epoch) {
    t.batches.begin_epoch(static_cast<std::uint64_t>(epoch));
    double loss = 0;
    for (std::size_t step = 0; step < t.batches.steps(); ++step) {
      const step_result done = co_await train_step(t, epoch, step, t.options.when);
      co_await log_step(t, epoch, step, done);
      report_step(t, epoch, step);
      loss += done.loss;
    }
    const bool learning = co_await report_epoch(t, epoch, loss);
    if (!learning) co_return 1;
    const bool saved = co_await save_epoch(t, epoch);
    if (!saved) co_return 1;
  }
  report_end(t);
  if (t.options.compare > 0) co_await compare_ways(t);
  const bool identical = co_await report_replicas(t);
  co_return identical ? 0 : 1;
}

tutti::task<int> train(tutti::communicator world, training_options options, train_digits::data_split data) {
  training t(std::move(world), std::move(options), std::move(data));
  co_await open_log(t);
  const int exit_code = co_await train_all(t);
  if (t.log) co_await t.log.finish();
  co_return exit_code;
}

}  // namespace train_mnist
