// SPDX-License-Identifier: Apache-2.0
// tutti-perf tune: finds the fastest algorithm here for each collective and size, and writes rules for tutti.
#pragma once

namespace perf {

// Takes the command line after "tune". Returns the exit code: 0, or 2 for a wrong command line.
int tune(int argc, const char* const* argv);

}  // namespace perf
