// SPDX-License-Identifier: Apache-2.0
// The devices that every test of the scheduler bridge runs on.
#pragma once

#include "support/local_world.hpp"

#include <functional>
#include <memory>
#include <string>
#include <tutti/emulated.hpp>
#include <tutti/gpu/stream.hpp>
#include <vector>

namespace tutti::test {

// One physical device, which all ranks of a test share, and what the tests may do to it.
struct bench {
  std::function<gpu::device(const communicator&)> open;
  // After n more pieces of work the device fails with this text; null: this one cannot be made to.
  std::function<void(std::uint64_t n, const std::string& why)> fail_after;
  // Nothing begins on it while this is true; null likewise.
  std::function<void(bool)> pause;
  std::function<void(const gpu::stream&, bool)> set_capturing;
  std::function<std::size_t()> allocations;   // live, of device memory
};

struct backend {
  std::string name;
  std::function<bench()> make;
  std::string missing;   // why it cannot be used here; empty: it can
};

// Emulated devices of every temper, the stand-in for CUDA, and CUDA where there is a GPU.
const std::vector<backend>& backends();
// Runs main(world, bench) on `ranks` ranks for each of them, as subcases; those that are missing are counted as skipped.
void on_each_backend(int ranks, const std::function<task<>(communicator, bench*)>& main);

}  // namespace tutti::test
