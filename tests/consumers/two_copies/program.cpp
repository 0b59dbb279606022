// SPDX-License-Identifier: Apache-2.0
// A program with a tutti inside, which opens the plug-in of its first argument while its own world is there.
#include <dlfcn.h>

#include <cstdio>
#include <tutti/tutti.hpp>

namespace {

const char* plugin = nullptr;

tutti::task<> main_of_rank(tutti::communicator world) {
  void* const opened = ::dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    std::printf("%s\n", ::dlerror());
    co_return;
  }
  const auto sum = reinterpret_cast<int (*)()>(::dlsym(opened, "sum_in_plugin"));
  const auto uses = reinterpret_cast<bool (*)(const void*)>(::dlsym(opened, "plugin_uses"));
  if (uses(reinterpret_cast<const void*>(&tutti::detail::run_main))) std::puts("there is one copy only");
  const int of_plugin = co_await tutti::compute(sum);  // on another thread, with its own loop
  int mine = 1;
  co_await world.all_reduce(mine, tutti::sum);
  std::printf("plug-in %d, program %d\n", of_plugin, mine);
}

}  // namespace

int main(int, char** arguments) {
  plugin = arguments[1];
  return tutti::run(main_of_rank);
}
