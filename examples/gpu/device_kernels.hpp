// SPDX-License-Identifier: Apache-2.0
// Opens the requested device, and launches the examples' kernels on any kind of device.
#pragma once

#include "gpu/elements.hpp"

#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/runtime.hpp>
#include <tutti/task.hpp>
#include <utility>

namespace gpu_examples {

// gpu::open for a `kind` as in --device: "emulated", "cuda" or "level_zero".
tutti::task<tutti::gpu::device> open_device(tutti::communicator world, std::string kind);

// Returns the argument after `option`, or `otherwise`.
std::string option_of(int argc, char** argv, const std::string& option, const std::string& otherwise);

template <class F>
tutti::task<> keep_code(tutti::communicator world, F* main, std::atomic<int>* code) {
  const int ended = co_await (*main)(std::move(world));
  if (ended != 0) *code = ended;
}
// Runs main(world), which returns an exit code, as a rank of its job. With --ranks N: on N threads of this
// process, whose kernels share the device at the same time.
template <class F>
int run(int argc, char** argv, F main) {
  const int ranks = std::stoi(option_of(argc, argv, "--ranks", "0"));
  if (ranks == 0) return tutti::run(main);
  std::atomic<int> code{0};
  try {
    tutti::run_local(ranks,
                     [&](tutti::communicator world) { return keep_code(std::move(world), &main, &code); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return code;
}

class device_kernels {
 public:
  // Throws if there are no kernels for that device. TUTTI_EXAMPLE_KERNELS names the file for Level Zero:
  // SPIR-V if it ends in .spv, otherwise a module in the device's native format.
  explicit device_kernels(const tutti::gpu::device& on);
  ~device_kernels();
  device_kernels(device_kernels&&) noexcept;

  enum class kernel { busy, add, multiply, bias_relu, softmax_loss, row_sums, relu_backward, step };
  void launch(const tutti::gpu::stream& in, kernel which, const arguments& with) const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace gpu_examples
