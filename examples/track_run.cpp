// SPDX-License-Identifier: Apache-2.0
// Every rank's losses, times, hyperparameters, console and artifacts in one run.
//   tutti-run -n 4 track_run runs
//   tutti-report runs/<the directory it names>
//   tensorboard --logdir runs
#include <tutti/track.hpp>
#include <tutti/tutti.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Each rank finds the centre of its own points; together they find the centre of all points.
tutti::task<int> train(tutti::communicator world, std::string directory) {
  tutti::track::options options;
  options.directory = directory;
  tutti::track::log log = co_await tutti::track::open(world, options);

  const double rate = 0.1;
  tutti::track::hyperparameter_map parameters;
  parameters.insert_or_assign("rate", rate);
  parameters.insert_or_assign("centre of my points", world.rank() + 1);
  log.hyperparameters(parameters);
  std::printf("rank %d of %d tracks in %s\n", world.rank(), world.size(), log.directory().c_str());

  std::vector<float> weight(1000, 0.0F), gradient(weight.size());
  for (int step = 0; step < 100; ++step) {
    const auto start = std::chrono::steady_clock::now();
    double loss = 0;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float target = static_cast<float>(world.rank() + 1) + 0.1F * std::sin(static_cast<float>(i));
      gradient[i] = weight[i] - target;
      loss += 0.5 * static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
    }
    tutti::track::step_times times;
    times.compute_seconds = seconds_since(start);
    const auto computed = std::chrono::steady_clock::now();
    co_await world.barrier();  // wait for the slowest rank
    times.waiting_seconds = seconds_since(computed);
    const auto met = std::chrono::steady_clock::now();
    co_await world.all_reduce(gradient, tutti::avg);
    times.communication_seconds = seconds_since(met);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= static_cast<float>(rate) * gradient[i];

    log.scalar("loss", step, loss / static_cast<double>(weight.size()));
    log.times(step, times);
    if (step % 25 == 0) log.histogram("gradient", step, gradient);
  }

  // 32 x 32 pixels of the result.
  std::vector<std::uint8_t> pixels(32 * 32);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<std::uint8_t>(50.0F * weight[i % weight.size()]);
  tutti::track::image_view picture;
  picture.width = picture.height = 32;
  picture.samples = pixels;
  log.image("weights", 100, picture);
  log.text("remark", 100, "Rank " + std::to_string(world.rank()) + " has done its part.");
  log.artifact("weights.bin", std::as_bytes(std::span(weight)));

  const tutti::track::totals totals = co_await log.finish();
  if (world.rank() == 0)
    std::printf("%llu records written, %llu lost\n", static_cast<unsigned long long>(totals.written),
                static_cast<unsigned long long>(totals.dropped + totals.failed));
  co_return totals.complete ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "runs";
  return tutti::run([&directory](tutti::communicator world) { return train(world, directory); });
}
