// SPDX-License-Identifier: Apache-2.0
// The part of Level Zero that tutti uses, declared here: the loader is opened at run time, and no Level Zero
// header is needed. A test compares the declarations with ze_api.h if that is installed.
#pragma once

#include "device/library.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

struct _ze_driver_handle_t;
struct _ze_device_handle_t;
struct _ze_context_handle_t;
struct _ze_command_list_handle_t;
struct _ze_event_pool_handle_t;
struct _ze_event_handle_t;
struct _ze_module_handle_t;
struct _ze_module_build_log_handle_t;
struct _ze_kernel_handle_t;

namespace tutti::level_zero::abi {

using result = std::uint32_t;
using driver = ::_ze_driver_handle_t;
using device = ::_ze_device_handle_t;
using context = ::_ze_context_handle_t;
using list = ::_ze_command_list_handle_t;
using event_pool = ::_ze_event_pool_handle_t;
using event = ::_ze_event_handle_t;
using module = ::_ze_module_handle_t;
using build_log = ::_ze_module_build_log_handle_t;
using kernel = ::_ze_kernel_handle_t;

// X(name, number, the name there)
#define TUTTI_LEVEL_ZERO_RESULTS(X)                                               \
  X(success, 0, ZE_RESULT_SUCCESS)                                                \
  X(not_ready, 1, ZE_RESULT_NOT_READY)                                            \
  X(device_lost, 0x70000001, ZE_RESULT_ERROR_DEVICE_LOST)                         \
  X(out_of_host_memory, 0x70000002, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)           \
  X(out_of_device_memory, 0x70000003, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)       \
  X(module_build_failure, 0x70000004, ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)       \
  X(device_requires_reset, 0x70000006, ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET)     \
  X(dependency_unavailable, 0x70020000, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE)   \
  X(uninitialized, 0x78000001, ZE_RESULT_ERROR_UNINITIALIZED)                     \
  X(unsupported_version, 0x78000002, ZE_RESULT_ERROR_UNSUPPORTED_VERSION)         \
  X(unsupported_feature, 0x78000003, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)         \
  X(invalid_argument, 0x78000004, ZE_RESULT_ERROR_INVALID_ARGUMENT)               \
  X(invalid_null_handle, 0x78000005, ZE_RESULT_ERROR_INVALID_NULL_HANDLE)         \
  X(handle_object_in_use, 0x78000006, ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE)       \
  X(invalid_null_pointer, 0x78000007, ZE_RESULT_ERROR_INVALID_NULL_POINTER)       \
  X(invalid_size, 0x78000008, ZE_RESULT_ERROR_INVALID_SIZE)                       \
  X(unsupported_size, 0x78000009, ZE_RESULT_ERROR_UNSUPPORTED_SIZE)               \
  X(invalid_enumeration, 0x7800000c, ZE_RESULT_ERROR_INVALID_ENUMERATION)         \
  X(unsupported_enumeration, 0x7800000d, ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION) \
  X(invalid_native_binary, 0x7800000f, ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)     \
  X(invalid_kernel_name, 0x78000011, ZE_RESULT_ERROR_INVALID_KERNEL_NAME)         \
  X(unknown, 0x7ffffffe, ZE_RESULT_ERROR_UNKNOWN)

#define TUTTI_LEVEL_ZERO_RESULT(name, number, symbol) inline constexpr result name = number;
TUTTI_LEVEL_ZERO_RESULTS(TUTTI_LEVEL_ZERO_RESULT)
#undef TUTTI_LEVEL_ZERO_RESULT

inline constexpr std::uint32_t gpu_only = 1;  // flag of zeInit
inline constexpr std::uint32_t type_gpu = 1;
inline constexpr std::uint32_t group_compute = 1;
inline constexpr std::uint32_t queue_in_order = 2;  // since 1.7
inline constexpr std::uint32_t mode_asynchronous = 2;
inline constexpr std::uint32_t priority_normal = 0, priority_high = 2;
inline constexpr std::uint32_t pool_host_visible = 1;
inline constexpr std::uint32_t scope_host = 4;
inline constexpr std::uint32_t memory_unknown = 0, memory_host = 1, memory_device = 2, memory_shared = 3;
// Kernels may access memory of all kinds through pointers in structures.
inline constexpr std::uint32_t indirect_all = 7;
inline constexpr std::uint32_t format_spirv = 0, format_native = 1;
inline constexpr std::uint32_t version_1_7 = 0x10007;
inline constexpr std::uint32_t ipc_of_memory = 1;

// "ZE_RESULT_..."
inline const char* name_of(result code) noexcept {
  switch (code) {
#define TUTTI_LEVEL_ZERO_NAME(name, number, symbol) \
  case name:                                        \
    return #symbol;
    TUTTI_LEVEL_ZERO_RESULTS(TUTTI_LEVEL_ZERO_NAME)
#undef TUTTI_LEVEL_ZERO_NAME
    default:
      return "an error";
  }
}

// How structures begin: with their type.
template <std::uint32_t Type>
struct header {
  std::uint32_t type_of = Type;
  const void* next = nullptr;
};
struct ipc_properties {
  header<0x2> begin;
  std::uint32_t flags = 0;
};
struct ipc_memory {
  char bytes[64] = {};
};
struct device_properties {
  header<0x3> begin;
  std::uint32_t type = 0;
  std::uint32_t not_used[5] = {};
  std::uint64_t max_allocation = 0;
  std::uint32_t not_used_either[7] = {};
  std::uint64_t timer_resolution = 0;
  std::uint32_t timestamp_bits = 0;
  std::uint32_t kernel_timestamp_bits = 0;
  std::uint8_t uuid[16] = {};
  char name[256] = {};
};
struct queue_group_properties {
  header<0x6> begin;
  std::uint32_t flags = 0;
  std::size_t max_fill_pattern = 0;
  std::uint32_t queues = 0;
};
struct context_desc {
  header<0xd> begin;
  std::uint32_t flags = 0;
};
struct queue_desc {
  header<0xe> begin;
  std::uint32_t ordinal = 0;
  std::uint32_t index = 0;
  std::uint32_t flags = 0;
  std::uint32_t mode = mode_asynchronous;
  std::uint32_t priority = priority_normal;
};
struct event_pool_desc {
  header<0x10> begin;
  std::uint32_t flags = pool_host_visible;
  std::uint32_t count = 0;
};
struct event_desc {
  header<0x11> begin;
  std::uint32_t index = 0;
  std::uint32_t signal = scope_host;
  std::uint32_t wait = scope_host;
};
struct device_memory_desc {
  header<0x15> begin;
  std::uint32_t flags = 0;
  std::uint32_t ordinal = 0;
};
struct host_memory_desc {
  header<0x16> begin;
  std::uint32_t flags = 0;
};
struct memory_properties {
  header<0x17> begin;
  std::uint32_t type = memory_unknown;
  std::uint64_t id = 0;
  std::uint64_t page_size = 0;
};
struct module_desc {
  header<0x1b> begin;
  std::uint32_t format = format_spirv;
  std::size_t bytes = 0;
  const std::uint8_t* image = nullptr;
  const char* build_flags = nullptr;
  const void* constants = nullptr;
};
struct kernel_desc {
  header<0x1d> begin;
  std::uint32_t flags = 0;
  const char* name = nullptr;
};
struct group_count {
  std::uint32_t x = 1, y = 1, z = 1;
};

// X(member, symbol, parameters)
#define TUTTI_LEVEL_ZERO_CALLS(X)                                                                         \
  X(init, zeInit, (std::uint32_t))                                                                        \
  X(driver_get, zeDriverGet, (std::uint32_t*, driver**))                                                  \
  X(driver_api_version, zeDriverGetApiVersion, (driver*, std::uint32_t*))                                 \
  X(driver_ipc, zeDriverGetIpcProperties, (driver*, ipc_properties*))                                     \
  X(device_get, zeDeviceGet, (driver*, std::uint32_t*, device**))                                         \
  X(device_properties_of, zeDeviceGetProperties, (device*, device_properties*))                           \
  X(device_queue_groups, zeDeviceGetCommandQueueGroupProperties,                                          \
    (device*, std::uint32_t*, queue_group_properties*))                                                   \
  X(device_status, zeDeviceGetStatus, (device*))                                                          \
  X(context_create, zeContextCreate, (driver*, const context_desc*, context**))                           \
  X(context_destroy, zeContextDestroy, (context*))                                                        \
  X(list_create, zeCommandListCreateImmediate, (context*, device*, const queue_desc*, list**))            \
  X(list_destroy, zeCommandListDestroy, (list*))                                                          \
  X(barrier, zeCommandListAppendBarrier, (list*, event*, std::uint32_t, event**))                         \
  X(copy, zeCommandListAppendMemoryCopy,                                                                  \
    (list*, void*, const void*, std::size_t, event*, std::uint32_t, event**))                             \
  X(fill, zeCommandListAppendMemoryFill,                                                                  \
    (list*, void*, const void*, std::size_t, std::size_t, event*, std::uint32_t, event**))                \
  X(launch, zeCommandListAppendLaunchKernel,                                                              \
    (list*, kernel*, const group_count*, event*, std::uint32_t, event**))                                 \
  X(pool_create, zeEventPoolCreate,                                                                       \
    (context*, const event_pool_desc*, std::uint32_t, device**, event_pool**))                            \
  X(pool_destroy, zeEventPoolDestroy, (event_pool*))                                                      \
  X(event_create, zeEventCreate, (event_pool*, const event_desc*, event**))                               \
  X(event_destroy, zeEventDestroy, (event*))                                                              \
  X(event_query, zeEventQueryStatus, (event*))                                                            \
  X(event_signal, zeEventHostSignal, (event*))                                                            \
  X(event_reset, zeEventHostReset, (event*))                                                              \
  X(event_synchronize, zeEventHostSynchronize, (event*, std::uint64_t))                                   \
  X(alloc_device, zeMemAllocDevice,                                                                       \
    (context*, const device_memory_desc*, std::size_t, std::size_t, device*, void**))                     \
  X(alloc_host, zeMemAllocHost, (context*, const host_memory_desc*, std::size_t, std::size_t, void**))    \
  X(free, zeMemFree, (context*, void*))                                                                   \
  X(memory_properties_of, zeMemGetAllocProperties, (context*, const void*, memory_properties*, device**)) \
  X(address_range, zeMemGetAddressRange, (context*, const void*, void**, std::size_t*))                   \
  X(ipc_name, zeMemGetIpcHandle, (context*, const void*, ipc_memory*))                                    \
  X(ipc_open, zeMemOpenIpcHandle, (context*, device*, ipc_memory, std::uint32_t, void**))                 \
  X(ipc_close, zeMemCloseIpcHandle, (context*, const void*))                                              \
  X(module_create, zeModuleCreate, (context*, device*, const module_desc*, module**, build_log**))        \
  X(module_destroy, zeModuleDestroy, (module*))                                                           \
  X(build_log_text, zeModuleBuildLogGetString, (build_log*, std::size_t*, char*))                         \
  X(build_log_destroy, zeModuleBuildLogDestroy, (build_log*))                                             \
  X(kernel_create, zeKernelCreate, (module*, const kernel_desc*, kernel**))                               \
  X(kernel_destroy, zeKernelDestroy, (kernel*))                                                           \
  X(kernel_group_size, zeKernelSetGroupSize, (kernel*, std::uint32_t, std::uint32_t, std::uint32_t))      \
  X(kernel_indirect_access, zeKernelSetIndirectAccess, (kernel*, std::uint32_t))                          \
  X(kernel_argument, zeKernelSetArgumentValue, (kernel*, std::uint32_t, std::size_t, const void*))

// Null if the loader lacks them. Loaders from 1.4 on are supported.
#define TUTTI_LEVEL_ZERO_OPTIONAL_CALLS(X)                                            \
  X(list_synchronize, zeCommandListHostSynchronize, (list*, std::uint64_t)) /* 1.6 */ \
  X(last_error, zeDriverGetLastErrorDescription, (driver*, const char**))   /* 1.6 */

struct table {
  TUTTI_LEVEL_ZERO_CALLS(TUTTI_CALL_MEMBER)
  TUTTI_LEVEL_ZERO_OPTIONAL_CALLS(TUTTI_CALL_MEMBER)

  // The GPUs of all drivers, in the loader's order. Sub-devices are not listed.
  struct gpu {
    driver* of = nullptr;
    device* handle = nullptr;
  };
  std::vector<gpu> gpus;
  int devices() const noexcept { return static_cast<int>(gpus.size()); }
  // Whether handles are the loader's: it has several drivers, or was told to intercept. It does not wrap the
  // log of a failed build, and would mistake the driver's handle for its own.
  bool wrapped = false;

  // Held while handles are made and destroyed; no other lock is taken under it. A loader that wraps handles
  // forgets its handle only after the driver has destroyed the object. If another thread gets the same
  // address meanwhile, the loader returns the handle that it will forget (1.8.12; by its source, 1.17).
  mutable std::mutex handles;

  // For example "ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)", followed by the last error of driver `of`, if it
  // has one.
  std::string explain(result code, driver* of = nullptr) const {
    std::string text = fmt::format("{} ({:#x})", name_of(code), code);
    const char* message = nullptr;
    if (of != nullptr && last_error != nullptr && last_error(of, &message) == success && message != nullptr &&
        *message != '\0')
      text += fmt::format(": {}", message);
    return text;
  }
};

inline void find_gpus(table& calls) {
  std::uint32_t count = 0;
  if (calls.driver_get(&count, nullptr) != success) return;
  std::vector<driver*> drivers(count);
  if (count == 0 || calls.driver_get(&count, drivers.data()) != success) return;
  const char* const intercept = std::getenv("ZE_ENABLE_LOADER_INTERCEPT");
  calls.wrapped = count > 1 || (intercept != nullptr && *intercept == '1');
  for (driver* const of : drivers) {
    std::uint32_t devices = 0;
    if (calls.device_get(of, &devices, nullptr) != success || devices == 0) continue;
    std::vector<device*> handles(devices);
    if (calls.device_get(of, &devices, handles.data()) != success) continue;
    for (device* const d : handles) {
      device_properties p;
      if (calls.device_properties_of(d, &p) == success && p.type == type_gpu) calls.gpus.push_back({of, d});
    }
  }
}

inline std::unique_ptr<const table> open_library(const std::string& told) {
  gpu::detail::library in(told, {"libze_loader.so.1"},
                          "install Level Zero's loader (libze1, or level-zero) and the driver of the GPU "
                          "(TUTTI_LEVEL_ZERO_LIBRARY names another file)");
  auto calls = std::make_unique<table>();
  TUTTI_LEVEL_ZERO_CALLS(TUTTI_REQUIRE_CALL)
  TUTTI_LEVEL_ZERO_OPTIONAL_CALLS(TUTTI_FIND_CALL)
  if (!in.missing.empty())
    throw error(
        errc::not_supported,
        fmt::format("{} lacks {}: tutti needs a loader of Level Zero 1.4 (1.8 of the package) or later",
                    in.name, in.missing));
  if (const result code = calls->init(gpu_only); code != success)
    throw error(errc::not_supported,
                fmt::format("zeInit of {}: {}: no driver for a GPU was found (install intel-opencl-icd and "
                            "libze-intel-gpu1, or see whether this user may open /dev/dri/renderD*)",
                            in.name, calls->explain(code)));
  find_gpus(*calls);
  if (calls->gpus.empty())
    throw error(errc::not_supported,
                fmt::format("{} sees no GPU (ZE_AFFINITY_MASK, the container's devices)", in.name));
  return calls;
}

// Opens and initialises the library of TUTTI_LEVEL_ZERO_LIBRARY, or libze_loader.so.1, once for the process.
inline const gpu::detail::opened_library<table>& load() {
  return gpu::detail::load_library("TUTTI_LEVEL_ZERO_LIBRARY", &open_library);
}

}  // namespace tutti::level_zero::abi
