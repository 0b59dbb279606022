// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's driver API that tutti uses, declared here: libcuda is opened at run time, and no CUDA
// header is needed. A test compares the declarations with cuda.h if that is installed.
#pragma once

#include "device/library.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tutti::cuda::abi {

using result = int;
using device = int;
using device_pointer = unsigned long long;
struct context;
struct stream;
struct event;
struct module;
struct function;
struct uuid {
  unsigned char bytes[16];
};
struct ipc_memory {
  char bytes[64];
};
struct ipc_event {
  char bytes[64];
};
using host_function = void (*)(void*);

inline constexpr result success = 0, error_invalid_value = 1, error_out_of_memory = 2, error_no_device = 100,
                        error_invalid_handle = 400, error_not_found = 500, error_not_ready = 600,
                        error_already_registered = 712, error_not_permitted = 800, error_not_supported = 801,
                        error_unknown = 999;
inline constexpr int attribute_can_use_64_bit_stream_mem_ops = 122, attribute_multiprocessors = 16,
                     attribute_mps_enabled = 133;
inline constexpr int pointer_memory_type = 2, pointer_is_managed = 8, pointer_device_ordinal = 9,
                     pointer_range_start = 11, pointer_range_size = 12;
inline constexpr unsigned memory_type_host = 1, memory_type_device = 2;
inline constexpr unsigned stream_non_blocking = 1, event_disable_timing = 2, event_interprocess = 4,
                          ipc_lazy_peer_access = 1, wait_value_geq = 0, host_portable = 1,
                          host_device_map = 2;
inline constexpr int capture_none = 0, capture_mode_relaxed = 2;

// X(member, symbol, parameters)
#define TUTTI_CUDA_CALLS(X)                                                                            \
  X(init, cuInit, (unsigned))                                                                          \
  X(device_count, cuDeviceGetCount, (int*))                                                            \
  X(device_get, cuDeviceGet, (device*, int))                                                           \
  X(device_name, cuDeviceGetName, (char*, int, device))                                                \
  X(device_uuid, cuDeviceGetUuid_v2, (uuid*, device))                                                  \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, device))                                       \
  X(retain, cuDevicePrimaryCtxRetain, (context**, device))                                             \
  X(release, cuDevicePrimaryCtxRelease_v2, (device))                                                   \
  X(push, cuCtxPushCurrent_v2, (context*))                                                             \
  X(pop, cuCtxPopCurrent_v2, (context**))                                                              \
  X(priorities, cuCtxGetStreamPriorityRange, (int*, int*))                                             \
  X(error_name, cuGetErrorName, (result, const char**))                                                \
  X(error_string, cuGetErrorString, (result, const char**))                                            \
  X(alloc, cuMemAlloc_v2, (device_pointer*, std::size_t))                                              \
  X(free, cuMemFree_v2, (device_pointer))                                                              \
  X(host_alloc, cuMemHostAlloc, (void**, std::size_t, unsigned))                                       \
  X(host_free, cuMemFreeHost, (void*))                                                                 \
  X(host_register, cuMemHostRegister_v2, (void*, std::size_t, unsigned))                               \
  X(host_unregister, cuMemHostUnregister, (void*))                                                     \
  X(pointer_attributes, cuPointerGetAttributes, (unsigned, int*, void**, device_pointer))              \
  X(copy, cuMemcpyAsync, (device_pointer, device_pointer, std::size_t, stream*))                       \
  X(fill, cuMemsetD8Async, (device_pointer, unsigned char, std::size_t, stream*))                      \
  X(stream_create, cuStreamCreateWithPriority, (stream**, unsigned, int))                              \
  X(stream_destroy, cuStreamDestroy_v2, (stream*))                                                     \
  X(stream_query, cuStreamQuery, (stream*))                                                            \
  X(stream_wait, cuStreamWaitEvent, (stream*, event*, unsigned))                                       \
  X(stream_capturing, cuStreamIsCapturing, (stream*, int*))                                            \
  X(event_create, cuEventCreate, (event**, unsigned))                                                  \
  X(event_destroy, cuEventDestroy_v2, (event*))                                                        \
  X(event_record, cuEventRecord, (event*, stream*))                                                    \
  X(event_query, cuEventQuery, (event*))                                                               \
  X(call_host, cuLaunchHostFunc, (stream*, host_function, void*))                                      \
  X(module_load, cuModuleLoadData, (module**, const void*))                                            \
  X(module_unload, cuModuleUnload, (module*))                                                          \
  X(module_function, cuModuleGetFunction, (function**, module*, const char*))                          \
  X(launch, cuLaunchKernel,                                                                            \
    (function*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream*, void**, \
     void**))                                                                                          \
  X(capture_mode, cuThreadExchangeStreamCaptureMode, (int*))                                           \
  X(write_value, cuStreamWriteValue64_v2, (stream*, device_pointer, std::uint64_t, unsigned))          \
  X(wait_value, cuStreamWaitValue64_v2, (stream*, device_pointer, std::uint64_t, unsigned))            \
  X(ipc_name_memory, cuIpcGetMemHandle, (ipc_memory*, device_pointer))                                 \
  X(ipc_open_memory, cuIpcOpenMemHandle_v2, (device_pointer*, ipc_memory, unsigned))                   \
  X(ipc_close_memory, cuIpcCloseMemHandle, (device_pointer))                                           \
  X(ipc_name_event, cuIpcGetEventHandle, (ipc_event*, event*))                                         \
  X(ipc_open_event, cuIpcOpenEventHandle, (event**, ipc_event))

struct table {
  TUTTI_CUDA_CALLS(TUTTI_CALL_MEMBER)
  int devices() const noexcept {
    int n = 0;
    return device_count(&n) == success ? n : 0;
  }

  // For example "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered".
  std::string explain(result code) const {
    const char* name = nullptr;
    const char* message = nullptr;
    if (error_name(code, &name) != success || name == nullptr) name = "unknown error";
    if (error_string(code, &message) != success || message == nullptr) message = "";
    return fmt::format("{} ({}): {}", name, code, message);
  }
};

// The hardware queues of a process. A copy behind a closed gate holds up the copies of other streams of its queue; with 32
// no two of a program's few streams share one. On an H200 three processes with 32 ran under MPS, a fourth was refused.
constexpr int hardware_queues(int local_ranks, int gpus) noexcept {
  const int ranks = std::max(1, (local_ranks + gpus - 1) / std::max(1, gpus));
  return std::clamp(96 / ranks, 8, 32);
}
// Sets what CUDA and NCCL read once, where it is not set. NCCL's first launch of a kernel with a larger stack would wait
// for the device, unless all have room from the beginning. Call it where no other thread uses the environment.
inline void set_environment() noexcept {
  int gpus = 0;
  for (int i = 0; i < 64; ++i) gpus += ::access(fmt::format("/dev/nvidia{}", i).c_str(), F_OK) == 0 ? 1 : 0;
  const char* const ranks = std::getenv("LOCAL_WORLD_SIZE");
  const int queues = hardware_queues(ranks == nullptr ? 1 : std::atoi(ranks), std::max(1, gpus));
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(queues).c_str(), 0);
  ::setenv("NCCL_SET_STACK_SIZE", "1", 0);
}

inline std::unique_ptr<const table> open_library(const std::string& told) {
  gpu::impl::library in(told, {"libcuda.so.1"},
                        "NVIDIA's driver is not installed, or this container has no access to it "
                        "(TUTTI_CUDA_LIBRARY names another file)");
  auto calls = std::make_unique<table>();
  TUTTI_CUDA_CALLS(TUTTI_REQUIRE_CALL)
  if (!in.missing.empty())
    throw error(errc::not_supported,
                fmt::format("{} lacks {}: NVIDIA's driver is older than 515 (CUDA 11.7), which tutti needs",
                            in.name, in.missing));
  set_environment();
  if (const result code = calls->init(0); code != success)
    throw error(errc::not_supported,
                fmt::format("cuInit of {}: {}{}", in.name, calls->explain(code),
                            code == error_no_device
                                ? ": no GPU is visible here (CUDA_VISIBLE_DEVICES, the container's devices)"
                                : ""));
  if (calls->devices() == 0)
    throw error(errc::not_supported,
                fmt::format("{} sees no GPU (CUDA_VISIBLE_DEVICES, the container's devices)", in.name));
  return calls;
}

// Opens and initialises the library of TUTTI_CUDA_LIBRARY, or libcuda.so.1, once for the process.
inline const gpu::impl::opened_library<table>& load() {
  return gpu::impl::load_library("TUTTI_CUDA_LIBRARY", &open_library);
}

}  // namespace tutti::cuda::abi
