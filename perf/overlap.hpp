// SPDX-License-Identifier: Apache-2.0
// tutti-perf overlap: an all_reduce that goes on while the program computes, or waits for a device that does.
#pragma once

#include "common/buffer.hpp"
#include "common/options.hpp"
#include "common/report.hpp"

#include <tutti/tutti.hpp>

#include <cstddef>

namespace perf {

// One size and one way of computing; the method is in common/overlap.hpp.
tutti::task<overlap_row> measure_overlap(tutti::communicator world, options chosen, std::size_t bytes,
                                         computing mode, memory_source from);

}  // namespace perf
