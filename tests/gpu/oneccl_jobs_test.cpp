// SPDX-License-Identifier: Apache-2.0
// The real oneCCL between processes, on host memory and on emulated devices. ./run setup-oneccl installs it,
// or TUTTI_ONECCL_LIBRARY names it.
#include "support/command.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>
#include <string>

#ifndef TUTTI_ONECCL_JOB_PATH  // there was no oneCCL when the tests were built
#define TUTTI_ONECCL_JOB_PATH ""
#endif

namespace {

// Of what can be used; otherwise `why_not` says what is missing.
std::string real_library(std::string& why_not) {
  const char* const told = ::getenv("TUTTI_ONECCL_LIBRARY");
  std::string library = told != nullptr ? told : TUTTI_ONECCL_ROOT "/lib/libccl.so.2";
  if (::access(library.c_str(), R_OK) != 0 || *TUTTI_ONECCL_JOB_PATH == 0)
    why_not = "no " + library + " when the tests were built (./run setup-oneccl)";
  return library;
}

}  // namespace

TEST_CASE("the real oneCCL between 2 to 4 processes") {
  std::string why_not;
  const std::string library = real_library(why_not);
  if (!why_not.empty()) TUTTI_SKIP(why_not);
  for (const int ranks : {2, 3, 4}) {
    const auto result =
        tutti::test::run_shell("TUTTI_ONECCL_LIBRARY=" + library + " timeout 120 " TUTTI_RUN_PATH " -n " +
                               std::to_string(ranks) + " " TUTTI_ONECCL_JOB_PATH);
    CHECK_MESSAGE(result.exit_code == 0, result.output);
    CHECK_MESSAGE(result.says(std::to_string(ranks) + " ranks: all right"), result.output);
  }
}

TEST_CASE("processes in the real oneCCL hear of one that is killed") {
  std::string why_not;
  const std::string library = real_library(why_not);
  if (!why_not.empty()) TUTTI_SKIP(why_not);
  const auto result = tutti::test::run_shell("TUTTI_ONECCL_LIBRARY=" + library +
                                             " timeout 120 " TUTTI_RUN_PATH
                                             " --on-failure continue -n 3 " TUTTI_ONECCL_JOB_PATH " die");
  for (const int rank : {0, 1})
    CHECK_MESSAGE(result.says("rank " + std::to_string(rank) + ": told after"), result.output);
  // Exit codes are not checked: threads of oneCCL may end a process whose connection has broken.
}
