// SPDX-License-Identifier: Apache-2.0
// A shared object with a tutti of its own inside, as a plug-in or a module for Python has.
#include <tutti/tutti.hpp>
#include <vector>

namespace {

int sum = 0;

tutti::task<> add(tutti::communicator world) {
  std::vector<int> ones(1000, 1);
  co_await world.all_reduce(ones, tutti::sum);
  for (const int one : ones) sum += one;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int sum_in_plugin() { return tutti::run(add) == 0 ? sum : -1; }

extern "C" [[gnu::visibility("default")]] bool plugin_uses(const void* run) {
  return run == reinterpret_cast<const void*>(&tutti::detail::run_main);
}
