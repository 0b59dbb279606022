// SPDX-License-Identifier: Apache-2.0
// Ranks that hang, and ranks that do not, for launch/hang_test and launch/trace_test: `stuck NAME`. Each
// prints "ready PID" before it runs NAME.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr auto for_ever = 10min;  // longer than any test waits

tutti::task<> ready(tutti::communicator world) {
  co_await world.barrier();
  std::printf("ready %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
}

void compute_until(std::chrono::steady_clock::time_point end) {
  while (std::chrono::steady_clock::now() < end) {
  }
}

tutti::task<> receives_in_a_circle(tutti::communicator world) {
  co_await ready(world);
  int never = 0;
  co_await world.recv(never, (world.rank() + 1) % world.size(), 7);
}

tutti::task<> one_does_not_enter(tutti::communicator world) {
  co_await ready(world);
  float x = 1;
  if (world.rank() + 1 < world.size()) {
    co_await world.all_reduce(x, tutti::sum);
  } else {
    boost::asio::steady_timer timer(world.get_executor(), for_ever);
    co_await timer.async_wait(boost::asio::deferred);
  }
}

tutti::task<> one_computes(tutti::communicator world) {
  co_await ready(world);
  float x = 1;
  if (world.rank() == 1) compute_until(std::chrono::steady_clock::now() + for_ever);
  co_await world.all_reduce(x, tutti::sum);
}

tutti::task<> one_computes_in_the_pool(tutti::communicator world) {
  co_await ready(world);
  float x = 1;
  if (world.rank() == 1) {
    const tutti::trace_span span("a long step");
    auto work = [] { compute_until(std::chrono::steady_clock::now() + for_ever); };
    co_await tutti::compute(work);
  }
  co_await world.all_reduce(x, tutti::sum);
}

tutti::task<> barriers(tutti::communicator world) {
  co_await ready(world);
  for (;;) co_await world.barrier();
}

tutti::task<> one_is_killed(tutti::communicator world) {
  std::vector<float> x(1000, 1);
  for (int i = 0; i < 3; ++i) co_await world.all_reduce(x, tutti::sum);
  if (world.rank() == 1) {
    int never = 0;
    const tutti::request waiting = world.irecv(never, 0, 5);
    ::kill(::getpid(), SIGKILL);
  }
  co_await world.all_reduce(x, tutti::sum);
}

// Some of each operation, and a normal end.
tutti::task<> works(tutti::communicator world) {
  std::vector<double> x(1 << 16, 1);
  const int next = (world.rank() + 1) % world.size(), last = (world.rank() + world.size() - 1) % world.size();
  for (int step = 0; step < 20; ++step) {
    const tutti::trace_span span("step");
    tutti::request coming = world.irecv(x, last, step);
    std::vector<double> y(1 << 16, 2);
    co_await world.send(y, next, step);
    co_await coming;
    auto work = [] { compute_until(std::chrono::steady_clock::now() + 1ms); };
    co_await tutti::compute(work);
    co_await world.all_reduce(x, tutti::max);
  }
}

tutti::task<> works_and_one_is_killed(tutti::communicator world) {
  co_await works(world);
  co_await ready(world);
  if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
  co_await world.barrier();
}

// Barriers before and after a child of this process ends by exit(), as after an exec that fails.
tutti::task<> forks_and_works(tutti::communicator world) {
  for (int i = 0; i < 20; ++i) {
    if (i == 10) {
      std::fflush(nullptr);
      const pid_t child = ::fork();
      if (child == 0) std::exit(0);
      ::waitpid(child, nullptr, 0);
    }
    co_await world.barrier();
    co_await tutti::sleep_for(3ms);
  }
}

struct program {
  std::string_view name;
  tutti::task<> (*body)(tutti::communicator);
};
constexpr program programs[] = {
    {"receives_in_a_circle", &receives_in_a_circle},
    {"one_does_not_enter", &one_does_not_enter},
    {"one_computes", &one_computes},
    {"one_computes_in_the_pool", &one_computes_in_the_pool},
    {"barriers", &barriers},
    {"one_is_killed", &one_is_killed},
    {"works", &works},
    {"forks_and_works", &forks_and_works},
    {"works_and_one_is_killed", &works_and_one_is_killed},
};

}  // namespace

int main(int argc, char** argv) {
  for (const program& p : programs)
    if (argc == 2 && p.name == argv[1]) return tutti::run(p.body);
  std::fprintf(stderr, "usage: stuck NAME\n");
  return 2;
}
