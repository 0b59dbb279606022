// SPDX-License-Identifier: Apache-2.0
#include "train_mnist/resume.hpp"

#include "train_mnist/checkpoint.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace train_mnist {

tutti::task<int> resume(training& t) {
  std::int32_t first_epoch = 1;
  if (!t.options.resume_from.empty() && t.world.rank() == 0) {
    try {
      const checkpoint from = load(t.options.resume_from, t.model.parameters().size());
      if (from.seed != t.options.seed)
        throw std::runtime_error(t.options.resume_from + ": was trained with --seed " +
                                 std::to_string(from.seed));
      std::ranges::copy(from.parameters, t.model.parameters().begin());
      std::ranges::copy(from.velocity, t.optimiser.velocity().begin());
      first_epoch = static_cast<std::int32_t>(from.epoch) + 1;
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "train_mnist: %s\n", failure.what());
      first_epoch = 0;
    }
  }
  co_await t.world.broadcast(first_epoch, 0);
  if (first_epoch == 0) co_return 0;
  const std::vector<std::span<float>> state{t.model.parameters(), t.optimiser.velocity()};
  co_await t.parallel.broadcast(state);
  if (first_epoch > 1)
    t.lines.line(text("goes on after epoch %d of %s", first_epoch - 1, t.options.resume_from.c_str()));
  co_return first_epoch;
}

tutti::task<bool> save_epoch(training& t, int epoch) {
  if (t.options.save_to.empty()) co_return true;
  std::int32_t good = 1;
  if (t.world.rank() == 0) {
    checkpoint now;
    now.epoch = static_cast<std::uint64_t>(epoch);
    now.seed = t.options.seed;
    now.parameters.assign(t.model.parameters().begin(), t.model.parameters().end());
    now.velocity.assign(t.optimiser.velocity().begin(), t.optimiser.velocity().end());
    try {
      save(now, t.options.save_to);
      if (epoch == t.options.epochs) t.log.artifact("checkpoint", std::filesystem::path(t.options.save_to));
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "train_mnist: %s\n", failure.what());
      good = 0;
    }
  }
  co_await t.world.broadcast(good, 0);
  co_return good == 1;
}

}  // namespace train_mnist
