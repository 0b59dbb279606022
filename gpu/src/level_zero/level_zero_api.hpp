// SPDX-License-Identifier: Apache-2.0
// The calls of Level Zero, as its header declares them. The loader is opened at run time.
#pragma once

#include "device/library.hpp"

#include <level_zero/ze_api.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <tutti/level_zero.hpp>
#include <vector>

namespace tutti::level_zero::abi {

#define TUTTI_LEVEL_ZERO_CALLS(X)           \
  X(zeInit)                                 \
  X(zeDriverGet)                            \
  X(zeDriverGetApiVersion)                  \
  X(zeDriverGetIpcProperties)               \
  X(zeDeviceGet)                            \
  X(zeDeviceGetProperties)                  \
  X(zeDeviceGetCommandQueueGroupProperties) \
  X(zeDeviceGetStatus)                      \
  X(zeContextCreate)                        \
  X(zeContextDestroy)                       \
  X(zeCommandListCreateImmediate)           \
  X(zeCommandListDestroy)                   \
  X(zeCommandListAppendBarrier)             \
  X(zeCommandListAppendMemoryCopy)          \
  X(zeCommandListAppendMemoryFill)          \
  X(zeCommandListAppendLaunchKernel)        \
  X(zeEventPoolCreate)                      \
  X(zeEventPoolDestroy)                     \
  X(zeEventCreate)                          \
  X(zeEventDestroy)                         \
  X(zeEventQueryStatus)                     \
  X(zeEventHostSignal)                      \
  X(zeEventHostReset)                       \
  X(zeEventHostSynchronize)                 \
  X(zeMemAllocDevice)                       \
  X(zeMemAllocHost)                         \
  X(zeMemFree)                              \
  X(zeMemGetAllocProperties)                \
  X(zeMemGetAddressRange)                   \
  X(zeMemGetIpcHandle)                      \
  X(zeMemOpenIpcHandle)                     \
  X(zeMemCloseIpcHandle)                    \
  X(zeModuleCreate)                         \
  X(zeModuleDestroy)                        \
  X(zeModuleBuildLogGetString)              \
  X(zeModuleBuildLogDestroy)                \
  X(zeKernelCreate)                         \
  X(zeKernelDestroy)                        \
  X(zeKernelSetGroupSize)                   \
  X(zeKernelSetIndirectAccess)              \
  X(zeKernelSetArgumentValue)

// ZE_COMMAND_QUEUE_FLAG_IN_ORDER, which the header of 1.4 lacks.
inline constexpr ze_command_queue_flags_t queue_in_order = 2;

// A structure of that type, otherwise zero.
template <class T>
T zeroed(ze_structure_type_t type) noexcept {
  T made{};
  made.stype = type;
  return made;
}

// "ZE_RESULT_..."
inline const char* name_of(ze_result_t code) noexcept {
#define TUTTI_LEVEL_ZERO_NAME(result) \
  case result:                        \
    return #result;
  switch (code) {
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_NOT_READY)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_DEVICE_LOST)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_UNINITIALIZED)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_UNSUPPORTED_VERSION)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_ARGUMENT)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_SIZE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_UNSUPPORTED_SIZE)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_ENUMERATION)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
    TUTTI_LEVEL_ZERO_NAME(ZE_RESULT_ERROR_UNKNOWN)
    default:
      return "an error";
  }
#undef TUTTI_LEVEL_ZERO_NAME
}

// Whether no call succeeds on the device any more.
inline bool lost(ze_result_t code) noexcept {
  return code == ZE_RESULT_ERROR_DEVICE_LOST || code == ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET;
}

struct table {
#define TUTTI_LEVEL_ZERO_MEMBER(call) decltype(&::call) call = nullptr;
  TUTTI_LEVEL_ZERO_CALLS(TUTTI_LEVEL_ZERO_MEMBER)
#undef TUTTI_LEVEL_ZERO_MEMBER
  // Newer than the header of 1.4, and null if the loader lacks them. Loaders from 1.4 on are supported.
  ze_result_t (*zeCommandListHostSynchronize)(ze_command_list_handle_t, std::uint64_t) = nullptr;  // 1.6
  ze_result_t (*zeDriverGetLastErrorDescription)(ze_driver_handle_t, const char**) = nullptr;      // 1.6

  // The GPUs of all drivers, in the loader's order, without contexts. Sub-devices are not listed.
  std::vector<handles> gpus;
  int devices() const noexcept { return static_cast<int>(gpus.size()); }
  // Whether handles are the loader's: it has several drivers, or was told to intercept. It does not wrap the
  // log of a failed build, and would mistake the driver's handle for its own.
  bool wrapped = false;

  // Makes or destroys a handle. No other lock is taken meanwhile. A loader that wraps handles forgets its handle
  // only after the driver has destroyed the object. If another thread gets the same address meanwhile, the loader
  // returns the handle that it will forget (1.8.12; by its source, 1.17).
  template <class... P, class... A>
  ze_result_t one_at_a_time(ze_result_t (*call)(P...), A... arguments) const {
    const std::lock_guard lock(handles_);
    return call(arguments...);
  }

  // For example "ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)", followed by the last error of driver `of`, if it
  // has one.
  std::string explain(ze_result_t code, ze_driver_handle_t of = nullptr) const {
    std::string text = fmt::format("{} ({:#x})", name_of(code), static_cast<std::uint32_t>(code));
    const char* message = nullptr;
    if (of != nullptr && zeDriverGetLastErrorDescription != nullptr &&
        zeDriverGetLastErrorDescription(of, &message) == ZE_RESULT_SUCCESS && message != nullptr &&
        *message != '\0')
      text += fmt::format(": {}", message);
    return text;
  }

 private:
  mutable std::mutex handles_;
};

// What `list(&count, items)` lists: it is called for the number first. Empty if it fails.
template <class T, class List>
std::vector<T> all_of(const List& list, const T& blank = {}) {
  std::uint32_t count = 0;
  if (list(&count, static_cast<T*>(nullptr)) != ZE_RESULT_SUCCESS) return {};
  std::vector<T> found(count, blank);
  if (count > 0 && list(&count, found.data()) != ZE_RESULT_SUCCESS) found.clear();
  return found;
}

inline void find_gpus(table& calls) {
  const auto drivers = all_of<ze_driver_handle_t>(calls.zeDriverGet);
  const char* const intercept = std::getenv("ZE_ENABLE_LOADER_INTERCEPT");
  calls.wrapped = drivers.size() > 1 || (intercept != nullptr && *intercept == '1');
  for (const ze_driver_handle_t of : drivers)
    for (const auto d :
         all_of<ze_device_handle_t>([&](auto... to) { return calls.zeDeviceGet(of, to...); })) {
      auto p = zeroed<ze_device_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
      if (calls.zeDeviceGetProperties(d, &p) == ZE_RESULT_SUCCESS && p.type == ZE_DEVICE_TYPE_GPU)
        calls.gpus.push_back({.driver = of, .device = d});
    }
}

inline std::unique_ptr<const table> open_library(const std::string& told) {
  gpu::impl::library in(told, {"libze_loader.so.1"},
                        "install Level Zero's loader (libze1, or level-zero) and the driver of the GPU "
                        "(TUTTI_LEVEL_ZERO_LIBRARY names another file)");
  auto calls = std::make_unique<table>();
#define TUTTI_LEVEL_ZERO_REQUIRE(call) in.require(#call, calls->call);
  TUTTI_LEVEL_ZERO_CALLS(TUTTI_LEVEL_ZERO_REQUIRE)
#undef TUTTI_LEVEL_ZERO_REQUIRE
  in.find("zeCommandListHostSynchronize", calls->zeCommandListHostSynchronize);
  in.find("zeDriverGetLastErrorDescription", calls->zeDriverGetLastErrorDescription);
  if (!in.missing.empty())
    throw error(
        errc::not_supported,
        fmt::format("{} lacks {}: tutti needs a loader of Level Zero 1.4 (1.8 of the package) or later",
                    in.name, in.missing));
  if (const ze_result_t code = calls->zeInit(ZE_INIT_FLAG_GPU_ONLY); code != ZE_RESULT_SUCCESS)
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
inline const gpu::impl::opened_library<table>& load() {
  return gpu::impl::load_library("TUTTI_LEVEL_ZERO_LIBRARY", &open_library);
}

}  // namespace tutti::level_zero::abi
