// SPDX-License-Identifier: Apache-2.0
// The shortest runs of gpu-perf, on the emulated device and on the stand-ins for libcuda and libnccl. There
// its figures mean nothing, but its checks do.
#include "support/command.hpp"

#include <doctest/doctest.h>
#include <string>

namespace {

void run(const std::string& start, const std::string& options, int ranks) {
  const auto result =
      tutti::test::run_shell("TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH
                             " TUTTI_NCCL_LIBRARY=" TUTTI_FAKE_NCCL_PATH " TUTTI_FAKE_CUDA_STRICT=1 " +
                             start + " " TUTTI_GPU_PERF_PATH " --rounds 20 --largest 1 " + options);
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says(std::to_string(ranks) + " ranks"), result.output);
  CHECK_MESSAGE(result.says("staged, 1 MiB"), result.output);
  CHECK_MESSAGE(result.says("loop away"), result.output);
  CHECK_MESSAGE(!result.says("WRONG"), result.output);
}

}  // namespace

TEST_CASE("gpu-perf on the emulated device") { run("", "--ranks 2", 2); }
TEST_CASE("gpu-perf on CUDA") {
  run("", "--device cuda", 1);
  run("", "--device cuda --ranks 2", 2);
  run(TUTTI_RUN_PATH " -n 2", "--device cuda", 2);
}
TEST_CASE("gpu-perf beside raw NCCL") {
  const auto result = tutti::test::run_shell(
      "TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH " TUTTI_NCCL_LIBRARY=" TUTTI_FAKE_NCCL_PATH
      " TUTTI_FAKE_CUDA_STRICT=1 " TUTTI_GPU_PERF_PATH " --device cuda --rounds 20 --largest 1 --only nccl");
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  CHECK_MESSAGE(result.says("awaiting costs"), result.output);
  CHECK_MESSAGE(result.says("not blocking"), result.output);
  CHECK_MESSAGE(!result.says("latency"), result.output);
}
