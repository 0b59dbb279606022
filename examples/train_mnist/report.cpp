// SPDX-License-Identifier: Apache-2.0
#include "train_mnist/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <vector>

namespace train_mnist {
namespace {

tutti::task<> measure_accuracy(training& t, int epoch) {
  std::vector<std::uint32_t> all(t.data.test.size());
  std::iota(all.begin(), all.end(), 0U);
  const std::span<const std::uint32_t> mine =
      tutti::share_of(std::span<const std::uint32_t>(all), t.world.rank(), t.world.size());
  const auto count = [&t, mine] {
    constexpr std::size_t at_once = 256;
    std::int64_t correct = 0;
    for (std::size_t part = 0; part < tutti::batches_in(mine.size(), at_once); ++part) {
      t.read_batch(t.data.test, tutti::batch_of(mine, at_once, part));
      correct += static_cast<std::int64_t>(t.model.count_correct(t.batch.images, t.batch.labels));
    }
    return correct;
  };
  std::int64_t correct = co_await tutti::compute(count);
  co_await t.world.all_reduce(correct, tutti::sum);
  t.accuracy_percent = 100.0 * static_cast<double>(correct) / static_cast<double>(all.size());
  if (t.world.rank() == 0) t.log.scalar("test accuracy", epoch, t.accuracy_percent);
}

}  // namespace

bool report_start(training& t) {
  if (t.data.training.size() < static_cast<std::size_t>(t.world.size())) {
    if (t.world.rank() == 0)
      std::fprintf(stderr,
                   "train_mnist: %s has %zu images to train on, too few for %d ranks: use fewer ranks\n",
                   t.data.name.c_str(), t.data.training.size(), t.world.size());
    return false;
  }
  t.lines.line(text("%s: %zu images to train on, %zu to test; batches of %zu on %d %s", t.data.name.c_str(),
                    t.data.training.size(), t.data.test.size(), t.options.batch, t.world.size(),
                    t.world.size() == 1 ? "rank" : "ranks"));
  return true;
}

void report_step(training& t, int epoch, std::size_t step) {
  t.lines.bar(text("epoch %d", epoch), step + 1, t.batches.steps(),
              epoch == 1 ? "" : text("test accuracy %.2f %%", t.accuracy_percent));
}

tutti::task<bool> report_epoch(training& t, int epoch, double loss) {
  std::size_t images = 0;
  for (std::size_t step = 0; step < t.batches.steps(); ++step) images += t.batches.mine(step).size();
  train_digits::progress others(stdout, false);  // for the other ranks: rank 0 overwrites its bar
  (t.world.rank() == 0 ? t.lines : others)
      .line(text("Rank %d, epoch %d: %.4f", t.world.rank(), epoch,
                 loss / static_cast<double>(std::max<std::size_t>(images, 1))));
  co_await t.world.all_reduce(loss, tutti::sum);
  loss /= static_cast<double>(t.data.training.size());
  co_await measure_accuracy(t, epoch);
  t.lines.line(text("epoch %d: loss %.6f, test accuracy %.2f %%", epoch, loss, t.accuracy_percent));
  if (std::isfinite(loss)) co_return true;
  t.lines.line(text("the training diverged: try a --lr below %g", static_cast<double>(t.options.rate)));
  co_return false;
}

void report_end(training& t) {
  t.lines.line(text("test accuracy %.2f %% (of %zu images)", t.accuracy_percent, t.data.test.size()));
  if (t.steps == 0) return;
  const double per_step = 1e3 / static_cast<double>(t.steps);
  t.lines.line(
      text("per step of rank 0: compute %.3f ms, averaging %.3f ms, of which %.3f ms were waited for",
           t.compute_seconds * per_step, t.communication_seconds * per_step, t.exposed_seconds * per_step));
}

tutti::task<bool> report_replicas(training& t) {
  const tutti::replica_check check = co_await tutti::compare_replicas(t.world, t.model.parameters());
  t.lines.line(text("replicas identical: %s (hash %016llx)", check.agree() ? "yes" : "NO",
                    static_cast<unsigned long long>(check.hash)));
  co_return check.agree();
}

}  // namespace train_mnist
