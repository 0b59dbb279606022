// SPDX-License-Identifier: Apache-2.0
// Ranks that track a run and end in every way, for track/tracking_process_test: `track_drill DIRECTORY DRILL
// [NUMBER]`.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <tutti/track.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr int victim = 1;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

struct drill {
  std::string directory, name;
  long number = 0;
};

tutti::track::options options_of(const drill& d) {
  tutti::track::options o;
  o.directory = d.directory;
  o.name = "run";
  o.heartbeat = std::chrono::milliseconds(100);
  o.system_metrics = std::chrono::milliseconds(50);
  return o;
}

void say_some(const tutti::track::log& log, int n) {
  for (int i = 0; i < n; ++i) log.scalar("n", i, i);
}

tutti::task<> last_output(tutti::communicator world, drill d) {
  tutti::track::log log = co_await tutti::track::open(world, options_of(d));
  say_some(log, 100);
  if (world.rank() != victim) {
    co_await log.finish();
    co_return;
  }
  std::printf("last words of rank %d\n", world.rank());
  std::fflush(stdout);
  std::fprintf(stderr, "its last complaint\n");
  die();
}

// The victim dies after a number of calls that the test chooses. The others finish without it.
tutti::task<> killed_while_tracking(tutti::communicator world, drill d) {
  if (world.rank() == victim && d.number == 0) die();
  tutti::track::log log = co_await tutti::track::open(world, options_of(d));
  if (world.rank() == victim) {
    for (long i = 1;; ++i) {
      log.scalar("n", i, static_cast<double>(i));
      if (i % 1000 == 0) log.artifact("a", std::as_bytes(std::span(&i, 1)));
      if (i == d.number) die();
    }
  }
  say_some(log, 100);
  const tutti::track::totals t = co_await log.finish();
  std::printf("rank %d wrote %llu\n", world.rank(), static_cast<unsigned long long>(t.written));
}

// The victim stops, before it opens or while its log is open. The others open, log, finish and continue it.
tutti::task<> stopped(tutti::communicator world, drill d) {
  const bool before = d.name == "stopped_before_open";
  std::vector<int> pids(static_cast<std::size_t>(world.size()));
  const int mine = ::getpid();
  co_await world.all_gather(mine, pids);
  int word = 0;
  tutti::track::log log;
  if (world.rank() == victim) {
    if (!before) log = co_await tutti::track::open(world, options_of(d));
    for (int i = 0; i < world.size(); ++i)
      if (i != victim) co_await world.send(word, i, 1);
    ::raise(SIGSTOP);
    if (before) log = co_await tutti::track::open(world, options_of(d));
    say_some(log, 100);
    co_await log.finish();
    co_return;
  }
  co_await world.recv(word, victim, 1);
  const auto start = std::chrono::steady_clock::now();
  log = co_await tutti::track::open(world, options_of(d));
  say_some(log, 100);
  const tutti::track::totals t = co_await log.finish();
  const auto took = std::chrono::steady_clock::now() - start;
  std::printf("rank %d: complete %d in time %d\n", world.rank(), t.complete ? 1 : 0,
              took < std::chrono::seconds(10) ? 1 : 0);
  std::fflush(stdout);
  if (world.rank() != 0) {
    co_await world.send(word, 0, 2);
    co_return;
  }
  for (int i = 0; i < world.size(); ++i)
    if (i != victim && i != 0) co_await world.recv(word, i, 2);
  ::kill(pids[victim], SIGCONT);
}

tutti::task<> from_rank_0_only(tutti::communicator world, drill d) {
  tutti::track::options o = options_of(d);
  o.ranks = tutti::track::layout::rank_0_only;
  tutti::track::log log = co_await tutti::track::open(world, o);
  say_some(log, 100);
  co_await log.finish();
}

// Logs steps [from, to), and epochs of ten steps. Returns when they are on disk, or false if that takes too
// long. `already`: number of earlier records to wait for.
tutti::task<bool> say_loss(tutti::track::log log, int from, int to, std::uint64_t already) {
  const double value = from == 0 ? 1 : 2;
  for (int step = from; step < to; ++step) {
    log.scalar("loss", step, value);
    if (step % 10 == 9) log.scalar("accuracy", step / 10, value);
  }
  const auto said = already + static_cast<std::uint64_t>((to - from) + (to - from) / 10);
  const auto deadline = tutti::now() + std::chrono::seconds(60);
  while (log.so_far().written < said && tutti::now() < deadline)
    co_await tutti::sleep_for(std::chrono::milliseconds(1));
  co_return log.so_far().written >= said;
}

// The first start logs steps 0 to 49 and waits to be killed; each later one continues from step 30. With the
// number 1 there are also hyperparameters, an artifact and the console.
tutti::task<int> continued(tutti::communicator world, drill d) {
  tutti::track::options o;
  o.directory = d.directory;
  o.system_metrics = std::chrono::milliseconds(0);
  o.console = d.number == 1;
  if (d.name != "restarted") o.id = "continued";
  const char* const restarts = std::getenv("TUTTI_RESTART_COUNT");
  const bool first =
      d.name == "first" || (d.name == "restarted" && (restarts == nullptr || *restarts == '0'));
  tutti::track::log log;
  if (d.name == "outside") {
    o.label = "evaluation";
    log = co_await tutti::track::open(o);
  } else {
    log = co_await tutti::track::open(world, o);
  }
  const int from = first ? 0 : 30, to = first ? 50 : 80;
  std::uint64_t others = 0;
  if (d.number == 1) {
    tutti::track::hyperparameter_map parameters;
    parameters.insert_or_assign("rate", 0.5);
    parameters.insert_or_assign("goes on at", from);
    log.hyperparameters(parameters);
    const std::vector<float> weights(10, static_cast<float>(from));
    log.artifact("weights.bin", std::as_bytes(std::span(weights)));
    others = 2;
    std::printf("rank %d of %d: steps %d to %d\n", world.rank(), world.size(), from, to - 1);
    std::fflush(stdout);
  }
  const bool written = co_await say_loss(log, from, to, others);
  if (!written) co_return 9;
  if (first) {
    co_await world.barrier();
    if (d.name == "restarted") std::_Exit(3);
    std::printf("all is written\n");
    std::fflush(stdout);
    co_await tutti::sleep_for(std::chrono::hours(1));
  }
  const tutti::track::totals t = co_await log.finish();
  co_return t.complete ? 0 : 8;
}

// Steps of all ranks together, each in the log of its epoch. The victim dies once, and the others rejoin with
// it. `world` is empty if it was lost.
tutti::task<tutti::communicator> steps_of_an_epoch(tutti::communicator world, tutti::track::log log,
                                                   int& step, bool dies) {
  constexpr int steps = 40, last_step = 20;
  try {
    co_await world.all_reduce(step, tutti::max);
    for (; step < steps; ++step) {
      if (dies && step == last_step) die();
      int sum = 1;
      co_await world.all_reduce(sum, tutti::sum);
      log.scalar("loss", step, sum);
    }
  } catch (const tutti::error& e) {
    if (e.code() != tutti::errc::peer_failed && e.code() != tutti::errc::communicator_failed) throw;
    co_return tutti::communicator();
  }
  co_return world;
}

// With `rejoined_busy`, the survivors try the label before they finish the log that uses it.
tutti::task<int> rejoined(tutti::communicator world, drill d) {
  tutti::track::options o;
  o.directory = d.directory;
  o.system_metrics = std::chrono::milliseconds(0);
  if (d.name != "rejoined") o.id = "meeting";
  const char* const restarts = std::getenv("TUTTI_RESTART_COUNT");
  const bool dies = world.rank() == victim && (restarts == nullptr || *restarts == '0');
  int step = 0;
  for (;;) {
    tutti::track::log log = co_await tutti::track::open(world, o);
    const tutti::communicator left = co_await steps_of_an_epoch(world, log, step, dies);
    if (!left) world = co_await world.rejoin();
    if (!left && d.name == "rejoined_busy") {
      const auto second = co_await tutti::as_result(tutti::track::open(world, o));
      std::printf("label %s\n", second.error == tutti::errc::invalid_argument ? "is taken" : "is NOT taken");
    }
    const tutti::track::totals t = co_await log.finish();
    if (!t.complete || t.failed != 0) co_return 8;
    if (left) co_return 0;
    std::printf("rank %d goes on at %d\n", world.rank(), step);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  drill d;
  d.directory = argv[1];
  d.name = argv[2];
  d.number = argc > 3 ? std::atol(argv[3]) : 0;
  if (d.name == "first" || d.name == "again" || d.name == "outside" || d.name == "restarted")
    return tutti::run([&d](tutti::communicator world) { return continued(world, d); });
  if (d.name.starts_with("rejoined"))
    return tutti::run([&d](tutti::communicator world) { return rejoined(world, d); });
  return tutti::run([&d](tutti::communicator world) {
    if (d.name == "last_output") return last_output(world, d);
    if (d.name == "rank_0_only") return from_rank_0_only(world, d);
    if (d.name == "killed") return killed_while_tracking(world, d);
    return stopped(world, d);
  });
}
