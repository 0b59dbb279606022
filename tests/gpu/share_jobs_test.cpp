// SPDX-License-Identifier: Apache-2.0
// Ranks in several processes that share a device, by CUDA IPC: on the stand-in for libcuda, whose memory and
// events other processes can open, and on a GPU where there is one.
#include "support/command.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <string>
#include <tutti/cuda.hpp>

namespace {

tutti::test::command_result job(int ranks, const std::string& mode, const std::string& variables = {},
                                const std::string& how = {}) {
  return tutti::test::run_shell("TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH
                                " TUTTI_CUDA_KERNELS=" TUTTI_FAKE_CUDA_PATH " " +
                                variables + " " TUTTI_RUN_PATH " " + how + " -n " + std::to_string(ranks) +
                                " " TUTTI_GPU_SHARE_JOB_PATH " " + mode);
}

}  // namespace

TEST_CASE("processes reduce on the device that they share") {
  for (const int ranks : {2, 3}) {
    const auto result = job(ranks, "shared");
    CHECK_MESSAGE(result.exit_code == 0, result.output);
    CHECK_MESSAGE(result.says(std::to_string(ranks) + " ranks: all right"), result.output);
    CHECK_MESSAGE(result.says("all_to_all between processes is staged"), result.output);
  }
}

TEST_CASE("two ranks in each of two processes") {
  const tutti::test::scratch_directory folder;
  const std::string program =
      "TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH " TUTTI_CUDA_KERNELS=" TUTTI_FAKE_CUDA_PATH
      " " TUTTI_GPU_SHARE_JOB_PATH " pairs ";
  const std::string file = (folder.path() / "meeting").string();
  const auto result =
      tutti::test::run_shell(program + "0 " + file + " & " + program + "1 " + file + " && wait $!");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says("4 ranks: all right"), result.output);
}

TEST_CASE("memory that cannot be opened, or that is not the other's: staged, and it is said why") {
  const auto refused = job(2, "staged", "TUTTI_FAKE_CUDA_IPC=refused");
  CHECK_MESSAGE(refused.exit_code == 0, refused.output);
  CHECK_MESSAGE(refused.says("cuIpcOpen"), refused.output);
  CHECK_MESSAGE(refused.says("2 ranks: all right"), refused.output);
  const auto elsewhere = job(2, "staged", "TUTTI_FAKE_CUDA_IPC=elsewhere");
  CHECK_MESSAGE(elsewhere.exit_code == 0, elsewhere.output);
  CHECK_MESSAGE(elsewhere.says("is not what is read there"), elsewhere.output);
  CHECK_MESSAGE(elsewhere.says("2 ranks: all right"), elsewhere.output);
  const auto told = job(2, "staged", "TUTTI_GPU_PATH=staged");
  CHECK_MESSAGE(told.exit_code == 0, told.output);
}

TEST_CASE("processes that call different collectives are told, all of them") {
  const auto result = job(3, "mismatch");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.times("ranks called different collectives") == 3, result.output);
}

TEST_CASE("processes hear of one that is killed, and of one that leaves") {
  const auto killed = job(3, "die", "TUTTI_TIMEOUT=30", "--on-failure continue");
  for (const int rank : {0, 2})
    CHECK_MESSAGE(killed.says("rank " + std::to_string(rank) + ": told"), killed.output);
  const auto left = job(3, "leave", "TUTTI_TIMEOUT=30");
  for (const int rank : {0, 2})
    CHECK_MESSAGE(left.says("rank " + std::to_string(rank) + ": told"), left.output);
  CHECK_MESSAGE(left.exit_code == 0, left.output);
}

TEST_CASE("the same on a GPU") {
  if (const std::string why = tutti::cuda::why_not(); !why.empty()) TUTTI_SKIP(why);
  const auto result = tutti::test::run_shell(TUTTI_RUN_PATH " -n 2 " TUTTI_GPU_SHARE_JOB_PATH " shared");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
}
