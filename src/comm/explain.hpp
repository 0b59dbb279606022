// SPDX-License-Identifier: Apache-2.0
// Who waits for whom, as far as this process can read it.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::comm {

class world;

// `world`: world_info::id, `size`: its ranks.
std::string explain_world(std::uint64_t world, int size);
// An operation of this rank has taken longer than its timeout: writes the explanation to standard error, once
// for all ranks to which that happens within some seconds.
void report_hang(world& w) noexcept;

}  // namespace tutti::comm
