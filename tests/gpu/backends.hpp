// SPDX-License-Identifier: Apache-2.0
// The devices that every test of the scheduler bridge runs on.
#pragma once

#include "support/local_world.hpp"
#include "support/variable.hpp"

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
  std::function<std::size_t()> allocations;      // live, of device memory; null likewise
  bool tells_why = true;                         // the text of fail_after reaches the error
  std::function<std::string()> misuse;           // of the driver's interface, so far; null: nobody looks
  std::vector<std::shared_ptr<variable>> scene;  // until the bench goes
};

struct backend {
  std::string name;
  std::function<bench()> make;
};

// The file of the stand-in for libcuda, libnccl or oneCCL's libccl: where it was built, or in
// TUTTI_FAKES_DIR.
std::string stand_in(const std::string& library);

// The stand-in for libcuda, by its own functions.
class fake_cuda {
 public:
  fake_cuda();
  void (*reset)(int, std::uint64_t, std::uint64_t, int) = nullptr;
  void (*fail_after)(int, std::uint64_t, const char*) = nullptr;
  void (*refuse_events_after)(int) = nullptr;
  void (*pause)(int, int) = nullptr;
  void (*set_capturing)(void*, int) = nullptr;
  std::uint64_t (*allocations)(int) = nullptr;
  std::uint64_t (*misuses)() = nullptr;
  const char* (*last_misuse)() = nullptr;
};

// The driver for Level Zero that runs on the CPU, by its own functions, under the real loader.
class level_zero_driver {
 public:
  // Why it cannot be used here; empty: it can. It is what the loader finds, from the first call on.
  static std::string why_not();
  level_zero_driver();
  void (*reset)(std::uint64_t adversary, std::uint64_t delay_us, int in_order) = nullptr;
  void (*fail_after)(int, std::uint64_t) = nullptr;
  void (*pause)(int, int) = nullptr;
  std::uint64_t (*allocations)(int) = nullptr;
  std::uint64_t (*misuses)() = nullptr;
  const char* (*last_misuse)() = nullptr;
};

// Emulated devices of every temper, the stand-ins for CUDA and Level Zero, and CUDA where there is a GPU
// (cuda_test and level_zero_test count what is absent). TUTTI_TEST_DEVICES: only those whose names begin with
// it.
const std::vector<backend>& backends();
// Runs main(world, bench) on `ranks` ranks for each of them.
void on_each_backend(int ranks, const std::function<task<>(communicator, bench*)>& main);

}  // namespace tutti::test
