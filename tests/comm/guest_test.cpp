// SPDX-License-Identifier: Apache-2.0
// A runtime on the program's own io_context takes nothing of the process.
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

namespace {

std::atomic<int> fork_handlers{0};

}  // namespace

// In the place of libc's, which each program has linked in.
extern "C" int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
extern "C" int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) noexcept {
  ++fork_handlers;
  return __register_atfork(prepare, parent, child, nullptr);
}

using namespace tutti;
using namespace tutti::test;

namespace {

std::vector<struct sigaction> signal_handlers() {
  std::vector<struct sigaction> all(static_cast<std::size_t>(SIGRTMAX) + 1);
  for (int number = 1; number <= SIGRTMAX; ++number)
    ::sigaction(number, nullptr, &all[static_cast<std::size_t>(number)]);
  return all;
}

task<> program(runtime* rt, const memory_store* shared, int rank) {
  memory_store mine(rt->get_executor(), *shared);
  init_options options;
  options.rank = rank;
  options.world_size = 2;
  communicator world = co_await init(*rt, options, mine);
  int x = 1 + rank;
  co_await world.all_reduce(x, sum);
  CHECK(x == 3);
}

}  // namespace

TEST_CASE("guest: a runtime installs no handler of signals, of std::terminate or of fork") {
  const auto signals = signal_handlers();
  const std::terminate_handler terminate = std::get_terminate();
  const int fork_handlers_before = fork_handlers;
  boost::asio::io_context unused;
  const memory_store shared(unused.get_executor());
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1})
    ranks.emplace_back([&shared, rank] {
      boost::asio::io_context context;
      runtime rt(context);
      rt.run(program(&rt, &shared, rank));
    });
  for (std::thread& t : ranks) t.join();
  const auto now = signal_handlers();
  for (std::size_t number = 1; number < now.size(); ++number) {
    CAPTURE(number);
    CHECK((now[number].sa_handler == signals[number].sa_handler));
  }
  CHECK((std::get_terminate() == terminate));
  CHECK(fork_handlers == fork_handlers_before);
  // run() takes them, so the comparisons could fail.
  const int ended = tutti::run([](communicator) -> task<> { co_return; });
  CHECK(ended == 0);
  CHECK((std::get_terminate() != terminate));
  CHECK((signal_handlers()[SIGUSR1].sa_handler != signals[SIGUSR1].sa_handler));
}
