// SPDX-License-Identifier: Apache-2.0
// Opening the device that a program's user asks for, and launching the examples' kernels on it, of whatever
// kind it is.
#pragma once

#include "gpu/elements.hpp"

#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

namespace gpu_examples {

// "emulated", "cuda" or "level_zero", as --device says.
tutti::gpu::device open_device(const tutti::communicator& world, const std::string& kind);

// Of `argc`, `argv`: the word behind `option`, or `otherwise`.
std::string option_of(int argc, char** argv, const std::string& option, const std::string& otherwise);

class device_kernels {
 public:
  // Throws where it has no kernels for that device. Those for Level Zero are in the file that
  // TUTTI_EXAMPLE_KERNELS names: SPIR-V where that ends in .spv, otherwise a module in the device's own
  // format.
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
