// SPDX-License-Identifier: Apache-2.0
// Performs one rank's part of a random program, and compares the results with the serial model.
#pragma once

#include "coll/random/program.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tutti/communicator.hpp>
#include <tutti/task.hpp>

namespace tutti::test {

inline constexpr std::size_t no_step = ~std::size_t{0};

// Memory other than the host's, for calls of collectives.
class other_memory {
 public:
  // The copies for one call.
  class copies {
   public:
    virtual ~copies() = default;
    // Fetches the result, after `moving` has been awaited.
    virtual task<> fetch(std::span<std::uint32_t> result) = 0;
    request moving;
  };
  virtual ~other_memory() = default;
  // Starts the step's call on copies of both spans, which overlap likewise. The plan outlives the call.
  virtual task<std::unique_ptr<copies>> start(communicator c, const step* s, const part* plan,
                                              std::span<std::uint32_t> in, std::span<std::uint32_t> out) = 0;
};

// Throws std::runtime_error that describes the step if a result is wrong, and errors of operations. Flips one
// bit of step `spoilt`. `p` outlives it. Collectives use `memory`; nullptr: the host's.
task<> perform(communicator world, const program* p, std::size_t spoilt = no_step,
               other_memory* memory = nullptr);

}  // namespace tutti::test
