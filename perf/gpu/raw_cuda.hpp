// SPDX-License-Identifier: Apache-2.0
// CUDA and NCCL without tutti: the baseline of the device measurements.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tutti::perf::gpu {

class raw_cuda {
 public:
  raw_cuda();  // throws std::runtime_error if libcuda is missing
  ~raw_cuda();
  raw_cuda(const raw_cuda&) = delete;
  // Records an event in the stream and polls it until it completes.
  void spin_on_event(void* stream) const;
  void synchronize(void* stream) const;  // from any thread
  void wait(void* stream) const;         // makes the stream wait for the event that was recorded last
  // Durations of single calls, in seconds: the mean of `times`.
  double time_of_record(void* stream, int times) const;
  double time_of_query(int times) const;  // of the event that was recorded last

 private:
  struct calls;
  std::unique_ptr<calls> calls_;
};

class raw_nccl {
 public:
  struct id {
    char bytes[128];
  };
  raw_nccl();  // throws std::runtime_error if libnccl is missing
  ~raw_nccl();
  raw_nccl(const raw_nccl&) = delete;
  id make_id() const;
  int version() const;  // 22809: 2.28.9
  // Non-blocking: calls return at once, and a thread of NCCL executes them.
  void init(int ranks, id of, int rank, bool blocking = true);
  // Returns when the operation is in the stream.
  void all_reduce(const float* in, float* out, std::size_t count, void* stream) const;

 private:
  void settle(int code, const char* what) const;
  struct calls;
  std::unique_ptr<calls> calls_;
  void* communicator_ = nullptr;
};

}  // namespace tutti::perf::gpu
