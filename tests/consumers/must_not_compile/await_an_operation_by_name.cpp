// SPDX-License-Identifier: Apache-2.0
// An operation is used once: awaiting it by name would hide that it is empty afterwards.
// EXPECT: an operation or task is awaited as an rvalue
#include <tutti/tutti.hpp>

tutti::task<> program(tutti::communicator world) {
  auto barrier = world.barrier();
  co_await barrier;
}
