// SPDX-License-Identifier: Apache-2.0
// Performs its part of a random program on one rank, and compares what comes with what the serial model says.
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

// Where collectives are called on other memory than the host's.
class other_memory {
 public:
  // Of one call.
  class copies {
   public:
    virtual ~copies() = default;
    // The result, when `moving` has been awaited.
    virtual task<> fetch(std::span<std::uint32_t> result) = 0;
    request moving;
  };
  virtual ~other_memory() = default;
  // Starts the step's call on copies of both, which overlap where they do. The plan outlives the call.
  virtual task<std::unique_ptr<copies>> start(communicator c, const step* s, const part* plan,
                                              std::span<std::uint32_t> in, std::span<std::uint32_t> out) = 0;
};

// Throws std::runtime_error, with the step in words, when something wrong comes, and what operations throw.
// One bit of step `spoilt` is turned over. `p` outlives it. Collectives are called on `memory`; null: the host's.
task<> perform(communicator world, const program* p, std::size_t spoilt = no_step,
               other_memory* memory = nullptr);

}  // namespace tutti::test
