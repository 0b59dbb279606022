// SPDX-License-Identifier: Apache-2.0
// Performs its part of a random program on one rank, and compares what comes with what the serial model says.
#pragma once

#include "coll/random/program.hpp"

#include <cstddef>
#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

namespace tutti::test {

inline constexpr std::size_t no_step = ~std::size_t{0};

// Throws std::runtime_error, with the step in words, when something wrong comes, and what operations throw.
// One bit of step `spoilt` is turned over. `p` outlives it.
task<> perform(communicator world, const program* p, std::size_t spoilt = no_step);

}  // namespace tutti::test
