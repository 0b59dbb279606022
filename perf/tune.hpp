// SPDX-License-Identifier: Apache-2.0
// tutti-perf tune: which algorithm is the fastest here, for each collective and size, as rules that tutti
// reads.
#pragma once

namespace perf {

// The command line from behind "tune" on. The exit code: 0, 2 for a wrong command line.
int tune(int argc, const char* const* argv);

}  // namespace perf
