// SPDX-License-Identifier: Apache-2.0
// The GPU examples on the emulated device, as a user starts them.
#include "support/command.hpp"

#include <doctest/doctest.h>
#include <string>

namespace {

tutti::test::command_result run(int ranks, const std::string& program) {
  return tutti::test::run_shell(std::string(TUTTI_RUN_PATH) + " -n " + std::to_string(ranks) + " " +
                                TUTTI_EXAMPLES_BIN_DIR + "/" + program);
}

}  // namespace

TEST_CASE("gpu_ring_all_reduce is right") {
  for (const int ranks : {1, 3}) {
    const auto result = run(ranks, "gpu_ring_all_reduce --device emulated");
    CHECK_MESSAGE(result.exit_code == 0, result.output);
    CHECK_MESSAGE(result.says("0 elements wrong"), result.output);
  }
}

TEST_CASE("gpu_overlap says how much was hidden") {
  const auto result = run(2, "gpu_overlap --device emulated");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says("of the shorter hidden"), result.output);
}

TEST_CASE("gpu_train learns, and its replicas stay the same") {
  const auto result = run(2, "gpu_train --device emulated --epochs 3");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says("replicas identical: yes"), result.output);
}

TEST_CASE("without a GPU, asking for one says what is missing") {
  const auto result = tutti::test::run_shell(std::string("TUTTI_CUDA_LIBRARY=/none/libcuda.so ") +
                                             TUTTI_EXAMPLES_BIN_DIR + "/gpu_ring_all_reduce --device cuda");
  CHECK(result.exit_code == 1);
  CHECK_MESSAGE(result.says("no CUDA: /none/libcuda.so cannot be opened"), result.output);
}
