// SPDX-License-Identifier: Apache-2.0
// The size of the compute pool. The pool itself is reached through tutti::compute.
#pragma once

namespace tutti::core {

// How many ranks share this process's cores; counts until the pool is first used.
void set_compute_ranks(int ranks) noexcept;

}  // namespace tutti::core
