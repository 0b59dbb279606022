// SPDX-License-Identifier: Apache-2.0
// Explains who waits for whom, from what this process can read.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::comm {

class world;

// `world` is world_info::id, `size` the number of its ranks.
std::string explain_world(std::uint64_t world, int size);
// Called when an operation of this rank has taken longer than its timeout. Writes the explanation to standard
// error, once for all ranks to which that happens within some seconds.
void report_hang(world& w) noexcept;

}  // namespace tutti::comm
