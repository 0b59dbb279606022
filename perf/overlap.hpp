// SPDX-License-Identifier: Apache-2.0
// tutti-perf overlap: an all_reduce during a computation, or during a wait for a device.
#pragma once

#include "common/buffer.hpp"
#include "common/options.hpp"
#include "common/report.hpp"

#include <tutti/tutti.hpp>

#include <cstddef>

namespace perf {

// Measures one size and one mode; see common/overlap.hpp.
tutti::task<overlap_row> measure_overlap(tutti::communicator world, options chosen, std::size_t bytes,
                                         computing mode, memory_source from);

}  // namespace perf
