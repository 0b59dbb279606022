// SPDX-License-Identifier: Apache-2.0
#include "train_mnist/compare.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace train_mnist {
namespace {

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

// Both ways run the same steps alternately, so that other load on the machine affects both.
tutti::task<> compare_ways(training& t) {
  std::array<std::vector<double>, 2> milliseconds;
  for (std::size_t i = 0; i < 2 * t.options.compare; ++i) {
    const bool first_is_overlapped = i / 2 % 2 == 1;
    const averaging when =
        (i % 2 == 0) == first_is_overlapped ? averaging::overlapped : averaging::sequential;
    // Leaves out the last step, which is smaller.
    const std::size_t step = i / 2 % std::max<std::size_t>(t.batches.steps() - 1, 1);
    co_await t.world.barrier();
    const auto start = clock::now();
    {
      const tutti::trace_span span(when == averaging::sequential ? "sequential step" : "overlapped step");
      co_await train_step(t, 1, step, when);
    }
    co_await t.world.barrier();
    milliseconds[when == averaging::sequential ? 0 : 1].push_back(1e3 * seconds_since(start));
  }
  std::vector<double> gains;
  for (std::size_t i = 0; i < t.options.compare; ++i)
    gains.push_back(100 * (1 - milliseconds[1][i] / milliseconds[0][i]));
  const double sequential = median(milliseconds[0]), overlapped = median(milliseconds[1]);
  t.lines.line(text("median step: sequential %.3f ms, overlapped %.3f ms; median gain of %zu pairs %+.1f %%",
                    sequential, overlapped, gains.size(), median(gains)));
}

}  // namespace train_mnist
