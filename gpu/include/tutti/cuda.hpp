// SPDX-License-Identifier: Apache-2.0
// NVIDIA's GPUs at the loop. libcuda is opened at run time: programs link nothing of CUDA's, and run without it.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/stream.hpp>

#include <string>

struct CUstream_st;   // CUstream and cudaStream_t point to it

namespace tutti {

class runtime;

namespace cuda {

// How many GPUs there are; 0 where CUDA cannot be used: why_not() says what is missing and what to do.
int device_count() noexcept;
std::string why_not();

// GPU `ordinal` on the loop of a communicator or a runtime; opened once for each loop, later calls give the same. Without an
// ordinal the GPUs are dealt out by LOCAL_RANK. Uses the device's primary context, as cudart and PyTorch do: pointers and
// streams of theirs can be used. Throws errc::not_supported without CUDA, errc::invalid_argument.
gpu::device open(const communicator& of, int ordinal = -1);
gpu::device open(runtime& rt, int ordinal = -1);

// A stream with a CUDA face.
class stream : public gpu::stream {
 public:
  explicit stream(const gpu::device& on, bool urgent = false) : gpu::stream(checked(on), urgent) {}
  explicit stream(const communicator& of, int ordinal = -1) : gpu::stream(open(of, ordinal)) {}
  explicit stream(runtime& rt, int ordinal = -1) : gpu::stream(open(rt, ordinal)) {}
  // The program's own, which outlives this.
  static gpu::stream borrow(const gpu::device& on, CUstream_st* native) { return gpu::stream::borrow(checked(on), native); }

  CUstream_st* get() const noexcept { return static_cast<CUstream_st*>(native()); }   // kernel<<<grid, block, 0, s.get()>>>

 private:
  static const gpu::device& checked(const gpu::device& on);   // throws errc::invalid_argument for one that is not CUDA's
};

}  // namespace cuda
}  // namespace tutti
