// SPDX-License-Identifier: Apache-2.0
// NVIDIA's GPUs at the loop. libcuda is opened at run time: programs link nothing of CUDA's, and run without
// it.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

#include <memory>
#include <string>

struct CUstream_st;  // CUstream and cudaStream_t point to it

namespace tutti {

class runtime;

namespace cuda {

// How many GPUs there are; 0 where CUDA cannot be used: why_not() says what is missing and what to do.
int device_count() noexcept;
std::string why_not();

// GPU `ordinal` on the loop of a communicator or a runtime; opened once for each loop, later calls give the
// same. Without an ordinal the GPUs are dealt out by LOCAL_RANK. Uses the device's primary context, as cudart
// and PyTorch do: pointers and streams of theirs can be used. Throws errc::not_supported without CUDA,
// errc::invalid_argument.
gpu::device open(const communicator& of, int ordinal = -1);
gpu::device open(runtime& rt, int ordinal = -1);

// A stream with a CUDA face.
class stream : public gpu::stream {
 public:
  explicit stream(const gpu::device& on, bool urgent = false) : gpu::stream(checked(on), urgent) {}
  explicit stream(const communicator& of, int ordinal = -1) : gpu::stream(open(of, ordinal)) {}
  explicit stream(runtime& rt, int ordinal = -1) : gpu::stream(open(rt, ordinal)) {}
  // The program's own, which outlives this.
  static gpu::stream borrow(const gpu::device& on, CUstream_st* native) {
    return gpu::stream::borrow(checked(on), native);
  }

  CUstream_st* get() const noexcept {
    return static_cast<CUstream_st*>(native());
  }  // kernel<<<grid, block, 0, s.get()>>>

 private:
  static const gpu::device& checked(
      const gpu::device& on);  // throws errc::invalid_argument for one that is not CUDA's
};

// Kernels of the program's own, as nvcc -fatbin or -ptx gives them, on one device. A cheap handle.
class module {
 public:
  // Throws errc::invalid_argument for an image that has nothing for this GPU.
  module(const gpu::device& on, const void* image);
  // Of an extern "C" __global__ function. errc::invalid_argument: there is none of that name.
  void* kernel(const char* name) const;

 private:
  struct loaded;
  std::shared_ptr<loaded> state_;
};

struct launch_size {
  unsigned blocks = 1;
  unsigned threads = 256;
};
void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments);

// kernel<<<size.blocks, size.threads, 0, in>>>(arguments...), whose types are exactly those of the kernel's
// parameters.
template <class... A>
void launch(const gpu::stream& in, void* kernel, launch_size size, A... arguments) {
  void* addresses[] = {&arguments..., nullptr};
  launch_by_address(in, kernel, size, addresses);
}

}  // namespace cuda
}  // namespace tutti
