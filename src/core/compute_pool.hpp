// SPDX-License-Identifier: Apache-2.0
// The size of the compute pool. The pool itself is used through tutti::compute.
#pragma once

namespace tutti::core {

// Sets how many ranks share this process's cores. Has an effect until the pool is first used.
void set_compute_ranks(int ranks) noexcept;

}  // namespace tutti::core
