// SPDX-License-Identifier: Apache-2.0
// tutti-run --check: what this node finds before a job, and what would stop one.
#pragma once

#include "launch/options.hpp"

namespace tutti::launch {

// Checks this node and the way to node 0, for at most `--join-timeout` or half a minute, and prints the findings.
// Never shows the secret. Returns 0 if nothing would stop a job, else 1.
int run_check(const options& o);

}  // namespace tutti::launch
