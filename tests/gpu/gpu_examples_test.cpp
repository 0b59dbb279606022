// SPDX-License-Identifier: Apache-2.0
// The GPU examples as a user starts them: on the emulated device, on the stand-ins for libcuda and libnccl,
// and under Level Zero's loader with the driver that runs on the CPU.
#include "support/command.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <string>
#include <vector>

namespace {

tutti::test::command_result run(int ranks, const std::string& program, const std::string& environment = "") {
  return tutti::test::run_shell(environment + " " TUTTI_RUN_PATH " -n " + std::to_string(ranks) +
                                " " TUTTI_EXAMPLES_BIN_DIR "/" + program);
}

// Checks what tutorial_backends prints for `word`: each rank's sum, and the backend of each operation.
void check_backend(const std::string& environment, int ranks, const std::string& word,
                   const std::vector<std::string>& verbs) {
  const auto result = run(ranks, "tutorial_backends " + word, environment);
  CAPTURE(word);
  CHECK_MESSAGE(result.exit_code == 0, result.output);
  for (int rank = 0; rank < ranks; ++rank)
    CHECK_MESSAGE(result.times("Rank " + std::to_string(rank) + " has " +
                               std::to_string(ranks * (ranks + 1) / 2) + " on ") == 1,
                  result.output);
  for (const std::string& verb : verbs) CHECK_MESSAGE(result.times(verb + "\n") == 1, result.output);
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

TEST_CASE("tutorial_backends says what each backend can do") {
  for (const int ranks : {2, 4})
    check_backend("TUTTI_DEVICE=emulated", ranks, "staged",
                  {"send: by staged", "all_reduce: by staged", "scan: by staged", "barrier: by staged"});
  // The stand-ins for NCCL and oneCCL connect no processes.
  check_backend("TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH " TUTTI_NCCL_LIBRARY=" TUTTI_FAKE_NCCL_PATH, 1,
                "nccl",
                {"send: by staged", "all_reduce: by nccl", "all_to_all: by nccl",
                 "scan: no: NCCL has no uneven blocks, lists, scans and barriers"});
  for (const char* word : {"oneccl", "xccl"})
    check_backend("TUTTI_DEVICE=emulated TUTTI_ONECCL_LIBRARY=" TUTTI_FAKE_ONECCL_PATH, 1, word,
                  {"send: by staged", "all_reduce: by oneccl",
                   "barrier: no: oneCCL has no uneven blocks, lists, scans and barriers"});
}

TEST_CASE("tutorial_backends says what one kernel can do for processes that share a device") {
  const std::string stand_in = "TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH;
  if (run(2, "tutorial_backends one_device", stand_in).says("there is no kernel for this reduction"))
    TUTTI_SKIP("no kernels for CUDA: nvcc is not installed");
  for (const int ranks : {2, 4}) {
    check_backend(stand_in, ranks, "one_device",
                  {"recv: by staged", "all_reduce: by one_device", "reduce_scatter: by one_device",
                   "all_to_all: no: all_to_all between processes is staged",
                   "scan: no: uneven blocks, lists, scans and barriers are staged"});
    check_backend(stand_in, ranks, "auto", {"all_reduce: by one_device", "scan: by staged"});
  }
}

TEST_CASE("tutorial_backends says why a backend cannot") {
  for (const int ranks : {2, 4}) {
    const auto result =
        run(ranks, "tutorial_backends nccl",
            "TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH " TUTTI_NCCL_LIBRARY=" TUTTI_FAKE_NCCL_PATH);
    CHECK(result.exit_code == 1);
    CHECK_MESSAGE(result.says("all_reduce: no: two ranks have one device, which NCCL refuses\n"),
                  result.output);
    CHECK_MESSAGE(result.says("the backend nccl, which is forced"), result.output);
  }
}

// The stand-in ends a program that breaks CUDA's rules.
TEST_CASE("the examples run on CUDA") {
  const auto on_stand_in = [](int ranks, const std::string& program) {
    return run(ranks, program,
               "TUTTI_CUDA_LIBRARY=" TUTTI_FAKE_CUDA_PATH
               " TUTTI_FAKE_CUDA_KERNELS=" TUTTI_EXAMPLE_NATIVE_KERNELS_PATH " TUTTI_FAKE_CUDA_STRICT=1");
  };
  for (const int ranks : {1, 2}) {
    const auto ring = on_stand_in(ranks, "gpu_ring_all_reduce --device cuda");
    if (ring.says("was built without nvcc")) TUTTI_SKIP("no kernels for CUDA: nvcc is not installed");
    CHECK_MESSAGE(ring.exit_code == 0, ring.output);
    CHECK_MESSAGE(ring.says("cuda device 0 (stand-in)"), ring.output);
    CHECK_MESSAGE(ring.says("0 elements wrong"), ring.output);
    const auto hidden = on_stand_in(ranks, "gpu_overlap --device cuda --rounds 20");
    CHECK_MESSAGE(hidden.exit_code == 0, hidden.output);
    CHECK_MESSAGE(hidden.says("of the shorter hidden"), hidden.output);
    const auto trained = on_stand_in(ranks, "gpu_train --device cuda --epochs 2");
    CHECK_MESSAGE(trained.exit_code == 0, trained.output);
    CHECK_MESSAGE(trained.says("replicas identical: yes"), trained.output);
  }
}

TEST_CASE("the examples run on Level Zero") {
#ifdef TUTTI_LEVEL_ZERO_DRIVER_PATH
  ::setenv("ZE_ENABLE_ALT_DRIVERS", TUTTI_LEVEL_ZERO_DRIVER_PATH, 1);
  ::setenv("TUTTI_EXAMPLE_KERNELS", TUTTI_EXAMPLE_NATIVE_KERNELS_PATH, 1);
  const auto ring = run(2, "gpu_ring_all_reduce --device level_zero");
  if (ring.says("cannot be opened")) TUTTI_SKIP("no loader of Level Zero (install libze1)");
  CHECK_MESSAGE(ring.exit_code == 0, ring.output);
  CHECK_MESSAGE(ring.says("level_zero device 0 (stand-in)"), ring.output);
  CHECK_MESSAGE(ring.says("0 elements wrong"), ring.output);
  const auto trained = run(2, "gpu_train --device level_zero --epochs 3");
  CHECK_MESSAGE(trained.exit_code == 0, trained.output);
  CHECK_MESSAGE(trained.says("replicas identical: yes"), trained.output);
  ::unsetenv("TUTTI_EXAMPLE_KERNELS");
  const auto without = run(1, "gpu_train --device level_zero --epochs 1");
  CHECK(without.exit_code != 0);
  CHECK_MESSAGE(without.says("TUTTI_EXAMPLE_KERNELS"), without.output);
  ::unsetenv("ZE_ENABLE_ALT_DRIVERS");
#else
  TUTTI_SKIP("Level Zero's headers are not installed (libze-dev)");
#endif
}

TEST_CASE("without a GPU, asking for one says what is missing") {
  const auto result = tutti::test::run_shell(std::string("TUTTI_CUDA_LIBRARY=/none/libcuda.so ") +
                                             TUTTI_EXAMPLES_BIN_DIR + "/gpu_ring_all_reduce --device cuda");
  CHECK(result.exit_code == 1);
  CHECK_MESSAGE(result.says("no CUDA: /none/libcuda.so cannot be opened"), result.output);
}
