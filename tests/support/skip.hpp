// SPDX-License-Identifier: Apache-2.0
// Skips a test case that needs what this machine lacks. Skips are printed and counted, never silent.
#pragma once

#include <cstdlib>
#include <string>

namespace tutti::test {

// Prints `SKIPPED: reason (file:line)` and counts the running test case as skipped.
void count_skip(const char* file, int line, const std::string& reason);
// Why TLS does not work here: its module is not there, or does not open. Empty: it works.
const std::string& why_no_tls();
// Whether the suites of another processor run here in an emulator (tests/CMakeLists.txt).
inline bool emulated() { return std::getenv("TUTTI_TEST_EMULATED") != nullptr; }

}  // namespace tutti::test

// For the body of a TEST_CASE or another void function: returns from it and counts it as skipped.
#define TUTTI_SKIP(reason)                                   \
  do {                                                       \
    ::tutti::test::count_skip(__FILE__, __LINE__, (reason)); \
    return;                                                  \
  } while (false)

// At the beginning of a test case that needs what an emulator of processors (qemu 7.2) does not pass on to the kernel.
#define TUTTI_NEEDS_A_KERNEL(missing)                                           \
  do {                                                                          \
    if (::tutti::test::emulated()) TUTTI_SKIP("an emulator does not " missing); \
  } while (false)

// At the beginning of a test case with TLS, which is a module that a build may lack.
#define TUTTI_NEEDS_TLS()                                                              \
  do {                                                                                 \
    if (!::tutti::test::why_no_tls().empty()) TUTTI_SKIP(::tutti::test::why_no_tls()); \
  } while (false)
