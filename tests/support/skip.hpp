// SPDX-License-Identifier: Apache-2.0
// Skipping a test case where this machine lacks what it needs: said aloud and counted, never a silent pass.
#pragma once

#include <string>

namespace tutti::test {

// Prints `SKIPPED: reason (file:line)` and counts the running test case as skipped.
void count_skip(const char* file, int line, const std::string& reason);

}  // namespace tutti::test

// In the body of a TEST_CASE (or another function that returns void): leaves it, counted as skipped.
#define TUTTI_SKIP(reason)                                   \
  do {                                                       \
    ::tutti::test::count_skip(__FILE__, __LINE__, (reason)); \
    return;                                                  \
  } while (false)
