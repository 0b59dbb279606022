// SPDX-License-Identifier: Apache-2.0
// Objects of class operation.
#include "support/child.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <tutti/tutti.hpp>
#include <utility>

using namespace tutti;

namespace {

task<> receive(operation<status>* op) { co_await std::move(*op); }

task<> move_in_use(communicator world) {
  int value = 0;
  auto receiving = world.recv(value, 0);
  auto unused = std::move(receiving);  // nothing has been started
  scope tasks;
  tasks.spawn(receive(&unused));
  const auto moved = std::move(unused);
  co_await tasks.join();
}

}  // namespace

#ifndef NDEBUG
TEST_CASE("operation: to move one that has been started ends the program") {
  test::child mover([](const auto&) {
    ::signal(SIGABRT, SIG_DFL);  // doctest's would report it
    run_local(1, move_in_use);
    return 0;
  });
  CHECK(mover.end() == 128 + SIGABRT);
}
#endif

static_assert(sizeof(operation<>) <= 688);
