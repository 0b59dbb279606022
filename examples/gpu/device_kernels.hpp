// SPDX-License-Identifier: Apache-2.0
// Opens the requested device, and launches the examples' kernels on any kind of device.
#pragma once

#include "gpu/elements.hpp"

#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

namespace gpu_examples {

// `kind` as in --device: "emulated", "cuda" or "level_zero".
tutti::gpu::device open_device(const tutti::communicator& world, const std::string& kind);

// Returns the argument after `option`, or `otherwise`.
std::string option_of(int argc, char** argv, const std::string& option, const std::string& otherwise);

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
