// SPDX-License-Identifier: Apache-2.0
// The primary context of one GPU, its kernels, and the thread that frees its memory. Shared by all loops of the
// process.
#pragma once

#include "cuda/cuda_api.hpp"

#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tutti/gpu/device.hpp>
#include <vector>

namespace tutti::cuda {

// cuMemFree waits for the device, which no loop may do. It holds a lock of the driver meanwhile, and a loop that
// waits for that lock opens no gate and sends nothing to other ranks. So nothing is freed while a gate is closed
// or work waits for other ranks.
class shared_context {
 public:
  shared_context(const abi::table& calls, int ordinal);
  shared_context(const shared_context&) = delete;
  shared_context& operator=(const shared_context&) = delete;
  ~shared_context();

  // Returns null if there is no such kernel.
  abi::function* kernel(const char* name);
  void free_later(void* memory, gpu::memory_kind kind) noexcept;
  bool has_kernels() const noexcept { return module_ != nullptr; }
  void hold_frees(bool on) noexcept;
  // A stream that no one else uses, in this context, which is current. Given back, it still does its work.
  abi::result take_stream(abi::stream** taken, bool urgent);
  void give_back(abi::stream* s);

  const abi::table& calls;
  const int ordinal;
  abi::device device = 0;
  abi::context* context = nullptr;
  std::string name;
  std::string identity;
  int multiprocessors = 1;
  bool words = false;
  bool processes_at_once = false;  // by MPS

 private:
  abi::result create_stream(abi::stream** made, bool urgent);

  abi::module* module_ = nullptr;
  std::mutex mutex_;
  std::map<std::string_view, abi::function*> functions_;  // keys are static strings
  std::vector<abi::stream*> spare_streams_[2];            // by priority: usual, urgent; guarded by mutex_
  std::map<abi::stream*, bool> taken_streams_;            // urgent?
  std::mutex frees_mutex_;                                // held while memory is freed
  std::condition_variable may_free_;
  int holds_ = 0;
  boost::asio::thread_pool reaper_{1};
};

// Loads libcuda and makes the context of a device, numbered as for open(): the slow part of opening it. Any
// thread may call it. The result keeps the context; null if there is no such device.
std::shared_ptr<void> make_context(int ordinal);

// Makes the context current for its lifetime, whatever the thread had.
class in_context {
 public:
  explicit in_context(const shared_context& c) noexcept
      : calls_(c.calls), entered_(c.calls.push(c.context) == abi::success) {}
  in_context(const in_context&) = delete;
  in_context& operator=(const in_context&) = delete;
  ~in_context() {
    abi::context* was = nullptr;
    if (entered_) calls_.pop(&was);
  }

 private:
  const abi::table& calls_;
  bool entered_;
};

// Whether it is one of CUDA's devices.
bool is_cuda(const gpu::device& on) noexcept;

}  // namespace tutti::cuda
