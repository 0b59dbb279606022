// SPDX-License-Identifier: Apache-2.0
// CUDA: NVIDIA's GPUs in the loop. libcuda is opened at run time: programs do not link it, and run without
// it.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

#include <memory>
#include <string>

// CUstream and cudaStream_t are pointers to this.
struct CUstream_st;

namespace tutti {

class runtime;

namespace cuda {

// The number of GPUs; 0 if CUDA cannot be used. why_not() then says what is missing and how to get it.
int device_count() noexcept;
// Says what is missing to use CUDA, and how to get it; empty if nothing is.
std::string why_not();

// Opens GPU `ordinal` on the loop of a communicator or a runtime. A GPU is opened once per loop; later calls
// return the same device. Without an ordinal, LOCAL_RANK selects the GPU. Uses the device's primary context,
// as cudart and PyTorch do, so their pointers and streams can be used.
// Errors: throws errc::not_supported without CUDA, errc::invalid_argument for a bad ordinal, errc::resources, system
// or device_failed if the driver cannot start it.
gpu::device open(const communicator& of, int ordinal = -1);
gpu::device open(runtime& rt, int ordinal = -1);

// A stream that gives access to its CUstream.
class stream : public gpu::stream {
 public:
  explicit stream(const gpu::device& on, bool urgent = false) : gpu::stream(checked(on), urgent) {}
  explicit stream(const communicator& of, int ordinal = -1) : gpu::stream(open(of, ordinal)) {}
  explicit stream(runtime& rt, int ordinal = -1) : gpu::stream(open(rt, ordinal)) {}
  // Wraps a stream of the program, which outlives this.
  static gpu::stream borrow(const gpu::device& on, CUstream_st* native) {
    return gpu::stream::borrow(checked(on), native);
  }

  // The native stream, for launches: `kernel<<<grid, block, 0, s.get()>>>`.
  CUstream_st* get() const noexcept { return static_cast<CUstream_st*>(native()); }

 private:
  static const gpu::device& checked(
      const gpu::device& on);  // throws errc::invalid_argument unless it is a CUDA device
};

// Kernels of the program on one device, as nvcc -fatbin or -ptx produces them. A cheap handle.
class module {
 public:
  // Loads the image.
  // Errors: throws errc::invalid_argument for an image without code for this GPU.
  module(const gpu::device& on, const void* image);
  // Returns the kernel of an extern "C" __global__ function.
  // Errors: throws errc::invalid_argument if there is none of that name.
  void* kernel(const char* name) const;

 private:
  struct loaded;
  std::shared_ptr<loaded> state_;
};

// The size of a launch: blocks, and threads per block.
struct launch_size {
  unsigned blocks = 1;
  unsigned threads = 256;
};
// The untyped form of launch(): `arguments` holds the addresses of the arguments.
void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments);

// Launches `kernel<<<size.blocks, size.threads, 0, in>>>(arguments...)`. The types of the arguments are
// exactly those of the kernel's parameters.
template <class... A>
void launch(const gpu::stream& in, void* kernel, launch_size size, A... arguments) {
  void* addresses[] = {&arguments..., nullptr};
  launch_by_address(in, kernel, size, addresses);
}

}  // namespace cuda
}  // namespace tutti
