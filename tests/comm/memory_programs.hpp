// SPDX-License-Identifier: Apache-2.0
// Small programs of two ranks that together use the whole library, for tests of allocation failures. Each
// checks its results and throws wrong_result.
#pragma once

#include <string>
#include <tutti/tutti.hpp>

namespace tutti::test {

struct wrong_result {};

struct memory_program {
  const char* name;
  task<> (*body)(communicator world);
};

extern const memory_program memory_programs[];
extern const int memory_program_count;

}  // namespace tutti::test
