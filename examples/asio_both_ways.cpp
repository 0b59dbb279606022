// SPDX-License-Identifier: Apache-2.0
// tutti's operations in Asio's coroutines and completion tokens, and Asio's operations in a tutti::task.
//   tutti-run -n 4 asio_both_ways
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <cstdio>
#include <future>
#include <span>
#include <tutti/tutti.hpp>
#include <utility>

// The future of from_asio's second reduction. Waiting for a future blocks, so a compute thread waits.
std::future<void> second_sum;

// clang-format off
boost::asio::awaitable<void> from_asio(tutti::communicator world, std::span<float> x) {
  co_await world.all_reduce(x, tutti::sum);                                   // inside asio::awaitable
  std::future<void> f = world.all_reduce(x, tutti::sum)(boost::asio::use_future);  // any completion token
  second_sum = std::move(f);
}
tutti::task<> from_tutti(tutti::communicator world) {
  boost::asio::steady_timer timer(world.get_executor(), std::chrono::milliseconds(5));
  co_await timer.async_wait(boost::asio::deferred);                           // Asio inside a tutti::task
}
// clang-format on

tutti::task<int> both_ways(tutti::communicator world) {
  const auto start = std::chrono::steady_clock::now();
  co_await from_tutti(world);
  const bool waited = std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(5);

  std::array<float, 4> x{};
  x.fill(static_cast<float>(world.rank() + 1));
  auto spawned = boost::asio::co_spawn(world.get_executor(), from_asio(world, x), boost::asio::deferred);
  co_await std::move(spawned);
  const auto wait = [] { second_sum.get(); };
  co_await tutti::compute(wait);  // on the compute pool; the loop keeps moving bytes

  // The sum of 1 to n, added up again over n equal values.
  const float n = static_cast<float>(world.size()), expected = n * n * (n + 1) / 2;
  const bool correct = waited && x[0] == expected && x[3] == expected;
  if (world.rank() == 0) {
    std::printf("%d ranks, sum of sums %g, timer waited: %s\n", world.size(), x[0], waited ? "yes" : "NO");
  }
  co_return correct ? 0 : 1;
}

int main() { return tutti::run(both_ways); }
