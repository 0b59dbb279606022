// SPDX-License-Identifier: Apache-2.0
// A user's program on tutti::track. It tracks a run in the folder that it is started in.
#include <tutti/track.hpp>
#include <tutti/tutti.hpp>

#include <cstdio>

tutti::task<> track_a_value(tutti::communicator world) {
  tutti::track::options options;
  options.console = false;
  tutti::track::log log = co_await tutti::track::open(world, options);
  log.scalar("loss", 0, 1.0);
  const tutti::track::totals totals = co_await log.finish();
  std::printf("track: %s\n", totals.complete ? "yes" : "no");
}

int main() { return tutti::run(track_a_value); }
