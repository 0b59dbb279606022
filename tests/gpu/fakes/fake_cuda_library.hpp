// SPDX-License-Identifier: Apache-2.0
// The inside of the stand-in for libcuda: its handles, which of them are alive, and the checks of calls.
#pragma once

#include "cuda/cuda_api.hpp"
#include "emulated/device_queues.hpp"
#include "kernels/host_kernels.hpp"
#include "live_handles.hpp"
#include "native_kernel.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define TUTTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace tutti::cuda::abi {

struct context {
  std::unique_ptr<emulated::device_queues> queues;
  int ordinal = 0;
  bool words = true;
};
struct stream {
  context* of;
  emulated::device_queues::queue* queue;
};
// In memory that other processes map. Each record takes the next number.
struct shared_moment {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> passed;
};
struct event {
  context* of;
  emulated::device_queues::event point;
  shared_moment* shared = nullptr;  // for events of several processes
};
struct module {
  context* of;
};
struct function {
  // One of these.
  const gpu::kernels::kernel* of_tutti = nullptr;
  fakes::native_kernel* native = nullptr;  // a kernel of the program
  std::vector<std::size_t> parameters;     // sizes in bytes
};

}  // namespace tutti::cuda::abi

namespace tutti::cuda::fake {

using namespace tutti::cuda::abi;
using tutti::emulated::device_queues;

// ---- between processes: fake_cuda_ipc.cpp ----

shared_moment* new_moment();  // null: too many
// Number of other processes that have the allocation open.
std::uint64_t users_of(const context& c, std::uint64_t allocation);
void forget_names();  // drops the names of all allocations

// ---- this process ----

inline constexpr result failed_launch = 719, invalid_context = 201, capture_unsupported = 900;

// State of the stand-in. Its live handles are streams, events and modules.
struct library : fakes::live_handles {
  std::mutex mutex;
  std::vector<std::unique_ptr<context>> devices;
  std::vector<std::unique_ptr<function>> functions;
  std::uint64_t misuses = 0;
  std::string misuse = "none";

  library() { reset(1, 0, 0, true); }
  void reset(int n, std::uint64_t adversary, std::uint64_t delay_us, bool words) {
    forget_names();
    devices.clear();
    clear();
    for (int i = 0; i < n; ++i) {
      tutti::emulated::options how;
      how.memory_bytes = std::size_t{64} << 20;
      how.adversary = adversary;
      how.delay = std::chrono::microseconds(delay_us);
      if (adversary != 0) how.workers = 4;
      devices.push_back(std::make_unique<context>());
      devices.back()->queues = std::make_unique<device_queues>(how);
      devices.back()->ordinal = i;
      devices.back()->words = words;
    }
  }
  result misused(std::string what, result code) {
    const std::lock_guard lock(mutex);
    ++misuses;
    misuse = std::move(what);
    if (std::getenv("TUTTI_FAKE_CUDA_STRICT") != nullptr) {  // for programs that check no misuses
      std::fprintf(stderr, "stand-in for libcuda: %s\n", misuse.c_str());
      std::abort();
    }
    return code;
  }
};

inline library& lib() {
  static auto* const instance = new library;  // never destroyed: threads of the program may call at exit
  return *instance;
}
inline thread_local std::vector<context*> current;
inline thread_local bool in_host_function = false;
inline thread_local std::string last_failure;  // per thread, because cuGetErrorString returns no copy

// The checks that every call makes first. Returns success if nothing is wrong.
inline result wrong(const char* call) {
  if (in_host_function)
    return lib().misused(std::string(call) + " inside a host function", error_not_permitted);
  if (current.empty()) return lib().misused(std::string(call) + " without a context", invalid_context);
  if (current.back()->queues->failed()) {
    last_failure = current.back()->queues->failure();
    return failed_launch;
  }
  return success;
}
inline result wrong_handle(const char* call, const void* handle) {
  if (const result code = wrong(call); code != success) return code;
  return lib().knows(handle)
             ? success
             : lib().misused(std::string(call) + " of a handle that has gone", error_invalid_handle);
}
// Whether a stream of the device waits for a word. What an H200 then does not do, or does only behind that word, is
// counted as misuse. In strict mode programs call NCCL themselves, too, of which tutti does not know.
inline bool a_stream_waits() {
  const auto waits = [](const auto& i) {
    return i.source != nullptr && i.source->load(std::memory_order_acquire) < i.at_least;
  };
  return std::getenv("TUTTI_FAKE_CUDA_STRICT") == nullptr &&
         !current.back()->queues->all_queues(
             [&](const auto& q) { return std::ranges::none_of(q.items, waits); });
}
inline void* pointer(device_pointer p) { return reinterpret_cast<void*>(p); }

#define TUTTI_CHECK(...)                                                 \
  do {                                                                   \
    if (const result code = (__VA_ARGS__); code != success) return code; \
  } while (false)

}  // namespace tutti::cuda::fake
