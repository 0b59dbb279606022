// SPDX-License-Identifier: Apache-2.0
// Ranks in several processes share a device by the IPC of CUDA and of Level Zero: on the stand-in for
// libcuda, on the CPU driver under Level Zero's real loader, and on a GPU if there is one.
#include "support/command.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/second_loop.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <string>
#include <tutti/cuda.hpp>
#include <tutti/level_zero.hpp>

namespace {

using tutti::test::command_result;

// The variables that a stand-in needs, and the program to run.
struct stand_in {
  std::string variables, program, variable_of_ipc, opening;
};

stand_in cuda() {
  return {"TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH " TUTTI_CUDA_KERNELS=" TUTTI_FAKE_CUDA_PATH " ",
          TUTTI_GPU_SHARE_JOB_PATH " ", "TUTTI_FAKE_CUDA_IPC", "cuIpcOpen"};
}
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
stand_in level_zero() {
  return {"ZE_ENABLE_ALT_DRIVERS=" TUTTI_LEVEL_ZERO_DRIVER_PATH " ", TUTTI_GPU_SHARE_JOB_PATH " level_zero ",
          "TUTTI_FAKE_LEVEL_ZERO_IPC", "zeMemOpenIpcHandle"};
}
#endif

command_result job(const stand_in& on, int ranks, const std::string& mode, const std::string& variables = {},
                   const std::string& how = {}) {
  return tutti::test::run_shell(on.variables + variables + " " TUTTI_RUN_PATH " " + how + " -n " +
                                std::to_string(ranks) + " " + on.program + mode);
}

void share(const stand_in& on, int ranks, const std::string& variables = {}) {
  const auto result = job(on, ranks, "shared", variables);
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says(std::to_string(ranks) + " ranks: all right"), result.output);
  CHECK_MESSAGE(result.says("all_to_all between processes is staged"), result.output);
}

void share_in_pairs(const stand_in& on) {
  const tutti::test::scratch_directory folder;
  const std::string program = on.variables + on.program + "pairs ";
  const std::string file = (folder.path() / "rendezvous").string();
  const auto result =
      tutti::test::run_shell(program + "0 " + file + " & " + program + "1 " + file + " && wait $!");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says("4 ranks: all right"), result.output);
}

void stage(const stand_in& on) {
  const auto check = [&on](const std::string& variable, const std::string& why) {
    const auto result = job(on, 2, "staged", variable);
    CHECK_MESSAGE(result.exit_code == 0, result.output);
    CHECK_MESSAGE(result.says("2 ranks: all right"), result.output);
    CHECK_MESSAGE(result.says(why), result.output);
    const bool opens = !variable.ends_with("=refused");
    CHECK_MESSAGE(opens != result.says("no window: window on rank"), result.output);
  };
  check(on.variable_of_ipc + "=refused", on.opening);
  check(on.variable_of_ipc + "=elsewhere", "is not what is read there");
  check("TUTTI_GPU_BACKEND=staged", "not by one_device");
}

void disagree(const stand_in& on) {
  const auto result = job(on, 3, "mismatch");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.times(": told: ") == 3, result.output);
}

void die(const stand_in& on) {
  for (const std::string mode : {"die", "window-die"})
    for (const int mortal : {0, 1}) {
      const auto killed =
          job(on, 3, mode + " " + std::to_string(mortal), "TUTTI_TIMEOUT=30", "--on-failure continue");
      for (const int rank : {0, 1, 2})
        if (rank != mortal)
          CHECK_MESSAGE(killed.says("rank " + std::to_string(rank) + ": told"), killed.output);
    }
  const auto left = job(on, 3, "leave", "TUTTI_TIMEOUT=30");
  for (const int rank : {0, 2})
    CHECK_MESSAGE(left.says("rank " + std::to_string(rank) + ": told"), left.output);
  CHECK_MESSAGE(left.exit_code == 0, left.output);
}

// Why there is no Level Zero here; empty if there is.
std::string why_not_level_zero() {
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  ::setenv("ZE_ENABLE_ALT_DRIVERS", TUTTI_LEVEL_ZERO_DRIVER_PATH, 0);
  return tutti::level_zero::why_not();
#else
  return "Level Zero's headers are not installed (libze-dev)";
#endif
}

}  // namespace

TEST_CASE("processes reduce on the device that they share") {
  share(cuda(), 2);
  share(cuda(), 3);
}
TEST_CASE("processes with devices of their own have windows") {
  const auto result = job(cuda(), 2, "peers");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says("2 ranks: all right"), result.output);
}
TEST_CASE("two ranks in each of two processes") { share_in_pairs(cuda()); }
TEST_CASE("processes that cannot share memory stage their data, and say why") { stage(cuda()); }
TEST_CASE("processes that call different collectives all hear of it") { disagree(cuda()); }
TEST_CASE("processes hear of one that is killed, and of one that leaves") { die(cuda()); }

TEST_CASE("processes that share a device of Level Zero pass their data through its memory") {
  if (const std::string why = why_not_level_zero(); !why.empty()) TUTTI_SKIP(why);
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  SUBCASE("as it is") { share(level_zero(), 2); }
  if (tutti::test::is_second_loop()) return;  // the driver does not know the loop
  SUBCASE("whose driver takes descriptors from other processes itself") {
    share(level_zero(), 2, "TUTTI_FAKE_LEVEL_ZERO_IPC=opaque");
  }
  SUBCASE("that works in any order it may") {
    share(level_zero(), 3,
          "TUTTI_FAKE_LEVEL_ZERO_ADVERSARY=" + std::to_string(tutti::test::seed_of_this_run() | 1));
  }
  SUBCASE("under the validation layer") {
    share(level_zero(), 2, "ZE_ENABLE_VALIDATION_LAYER=1 ZE_ENABLE_PARAMETER_VALIDATION=1");
  }
  SUBCASE("whose handles the loader wraps") { share(level_zero(), 2, "ZE_ENABLE_LOADER_INTERCEPT=1"); }
#endif
}
TEST_CASE("two ranks in each of two processes on a device of Level Zero") {
  if (const std::string why = why_not_level_zero(); !why.empty()) TUTTI_SKIP(why);
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  if (!tutti::test::is_second_loop()) share_in_pairs(level_zero());
#endif
}
TEST_CASE("processes that cannot share memory of Level Zero stage their data, and say why") {
  if (const std::string why = why_not_level_zero(); !why.empty()) TUTTI_SKIP(why);
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  if (!tutti::test::is_second_loop()) stage(level_zero());
#endif
}
TEST_CASE("on Level Zero, processes hear of other calls, of one that is killed, and of one that leaves") {
  if (const std::string why = why_not_level_zero(); !why.empty()) TUTTI_SKIP(why);
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  disagree(level_zero());
  if (!tutti::test::is_second_loop()) die(level_zero());
#endif
}

TEST_CASE("the same on a GPU") {
  if (const std::string why = tutti::cuda::why_not(); !why.empty()) TUTTI_SKIP(why);
  const auto result = tutti::test::run_shell(TUTTI_RUN_PATH " -n 2 " TUTTI_GPU_SHARE_JOB_PATH " shared");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
}
