// SPDX-License-Identifier: Apache-2.0
#include "train_mnist/tracking.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace train_mnist {

tutti::task<> open_log(training& t) {
  if (t.options.track_in.empty()) co_return;
  tutti::track::options o;
  o.directory = t.options.track_in;
  o.system_metrics = std::chrono::seconds(1);
  t.log = co_await tutti::track::open(t.world, o);
  tutti::track::hyperparameter_map parameters;
  parameters.insert_or_assign("learning rate", t.options.rate);
  parameters.insert_or_assign("momentum", t.options.momentum);
  parameters.insert_or_assign("batch", t.options.batch);
  parameters.insert_or_assign("seed", t.options.seed);
  parameters.insert_or_assign("averaging",
                              t.options.when == averaging::overlapped ? "overlapped" : "sequential");
  parameters.insert_or_assign("hook", t.options.hook);
  parameters.insert_or_assign("data", t.data.name);
  parameters.insert_or_assign("images of this rank's first batch", t.batches.mine(0).size());
  t.log.hyperparameters(parameters);
  t.lines.line("tracked in " + t.log.directory().string());
}

tutti::task<> log_step(training& t, int epoch, std::size_t step, step_result done) {
  if (!t.log) co_return;
  const tutti::averaging_times times = t.parallel.last();
  // The shortest wait of any rank is communication; the rest of a wait is for the slowest rank.
  double least = times.exposed_seconds;
  co_await t.world.all_reduce(least, tutti::min);
  const auto number =
      static_cast<std::int64_t>(static_cast<std::size_t>(epoch - 1) * t.batches.steps() + step);
  const std::size_t images = std::max<std::size_t>(t.batches.mine(step).size(), 1);
  t.log.scalar("loss", number, done.loss / static_cast<double>(images));
  tutti::track::step_times spent;
  spent.compute_seconds = done.compute_seconds;
  spent.communication_seconds = least;
  spent.waiting_seconds = times.exposed_seconds - least;
  spent.hidden_seconds = std::max(0.0, times.communication_seconds - times.exposed_seconds);
  spent.bytes = times.bytes;
  t.log.times(number, spent);
}

}  // namespace train_mnist
