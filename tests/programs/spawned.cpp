// SPDX-License-Identifier: Apache-2.0
// A program that starts its own ranks, for launch/spawn_test: `spawned RANKS WHAT [arguments...]`.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

std::vector<std::string> given;  // the arguments

// Each rank prints the arguments it was given.
tutti::task<> tell(tutti::communicator world) {
  std::string text;
  for (const std::string& argument : given) text += "[" + argument + "]";
  const char* const variable = std::getenv("SPAWNED_VARIABLE");
  const char* const set_in_main = std::getenv("SPAWNED_IN_MAIN");
  std::printf("rank %d of %d: %s %s %s\n", world.rank(), world.size(), text.c_str(),
              variable != nullptr ? variable : "-", set_in_main != nullptr ? set_in_main : "-");
  co_return;
}

// Rank 2 fails, and the others do not end by themselves.
tutti::task<int> fail(tutti::communicator world) {
  co_await world.barrier();
  if (world.rank() == 2 && given[2] == "kill") std::raise(SIGKILL);
  if (world.rank() == 2) co_return 3;
  co_await tutti::sleep_for(std::chrono::hours(1));
  co_return 0;
}

// Each rank waits for ever, and so does a process that it has started.
tutti::task<> wait(tutti::communicator world) {
  const pid_t grandchild = ::fork();
  if (grandchild == 0)
    for (;;) ::pause();
  std::printf("pids %d %d\n", static_cast<int>(::getpid()), static_cast<int>(grandchild));
  std::fflush(stdout);
  co_await world.barrier();
  int never = 0;
  co_await world.recv(never, tutti::any_source);
}

tutti::task<int> spawn_again(tutti::communicator world) {
  const int code = tutti::spawn(world.size(), tell);
  co_return code;
}

tutti::task<> read_line(tutti::communicator world) {
  char line[100] = "nothing";
  if (std::fgets(line, sizeof line, stdin) != nullptr)
    line[std::string_view(line).find_last_not_of('\n') + 1] = 0;
  std::printf("rank %d read %s\n", world.rank(), line);
  co_return;
}

}  // namespace

int main(int argc, char** argv) {
  given.assign(argv, argv + argc);
  const int ranks = std::stoi(given.at(1));
  const std::string what = given.at(2);
  std::printf("before spawn");  // without a newline: each process must still write it exactly once
  ::setenv("SPAWNED_IN_MAIN", std::to_string(::getenv("RANK") == nullptr ? 1 : 2).c_str(), 0);
  std::puts("");
  if (what == "deleted") ::unlink(given.at(0).c_str());
  if (what == "kill" || what == "exit") return tutti::spawn(ranks, fail);
  if (what == "wait") return tutti::spawn(ranks, wait);
  if (what == "nested") return tutti::spawn(ranks, spawn_again);
  if (what == "input") return tutti::spawn(ranks, read_line);
  if (what == "twice") {
    const int code = tutti::spawn(ranks, tell);
    return code != 0 ? code : tutti::spawn(ranks, tell);
  }
  if (what == "tcp") {
    tutti::init_options options;
    options.transports = {"tcp"};
    return tutti::spawn(ranks, options, tell);
  }
  return tutti::spawn(ranks, tell);
}
