// SPDX-License-Identifier: Apache-2.0
#include "level_zero/level_zero_api.hpp"

#include "device/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

namespace tutti::level_zero::abi {
namespace {

using gpu::detail::find_call;
using gpu::detail::find_required_call;
using gpu::detail::reason_of_loader;
using opened = gpu::detail::opened_library<table>;

void find_gpus(table& calls) {
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

opened open(const std::string& path) {
  opened o;
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    o.why = fmt::format(
        "{} cannot be opened ({}): install Level Zero's loader (libze1, or level-zero) and the driver of the "
        "GPU "
        "(TUTTI_LEVEL_ZERO_LIBRARY names another file)",
        path, reason_of_loader());
    return o;
  }
  auto calls = std::make_unique<table>();
  std::string missing;
#define TUTTI_LEVEL_ZERO_FIND(member, symbol, parameters) \
  find_required_call(library, #symbol, calls->member, missing);
  TUTTI_LEVEL_ZERO_CALLS(TUTTI_LEVEL_ZERO_FIND)
#undef TUTTI_LEVEL_ZERO_FIND
  if (!missing.empty()) {
    o.why = fmt::format("{} lacks {}: tutti needs a loader of Level Zero 1.4 (1.8 of the package) or later",
                        path, missing);
    return o;
  }
#define TUTTI_LEVEL_ZERO_FIND(member, symbol, parameters) find_call(library, #symbol, calls->member);
  TUTTI_LEVEL_ZERO_OPTIONAL_CALLS(TUTTI_LEVEL_ZERO_FIND)
#undef TUTTI_LEVEL_ZERO_FIND
  if (const result code = calls->init(gpu_only); code != success) {
    o.why = fmt::format(
        "zeInit of {}: {}: no driver for a GPU was found (install intel-opencl-icd and libze-intel-gpu1, or "
        "see "
        "whether this user may open /dev/dri/renderD*)",
        path, calls->explain(code));
    return o;
  }
  find_gpus(*calls);
  if (calls->gpus.empty()) {
    o.why = fmt::format("{} sees no GPU (ZE_AFFINITY_MASK, the container's devices)", path);
    return o;
  }
  o.calls = std::move(calls);
  return o;
}

const char* name_of(result code) noexcept {
  switch (code) {
    case success:
      return "ZE_RESULT_SUCCESS";
    case not_ready:
      return "ZE_RESULT_NOT_READY";
    case device_lost:
      return "ZE_RESULT_ERROR_DEVICE_LOST";
    case out_of_host_memory:
      return "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY";
    case out_of_device_memory:
      return "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY";
    case module_build_failure:
      return "ZE_RESULT_ERROR_MODULE_BUILD_FAILURE";
    case device_requires_reset:
      return "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET";
    case dependency_unavailable:
      return "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE";
    case uninitialized:
      return "ZE_RESULT_ERROR_UNINITIALIZED";
    case unsupported_version:
      return "ZE_RESULT_ERROR_UNSUPPORTED_VERSION";
    case unsupported_feature:
      return "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE";
    case invalid_argument:
      return "ZE_RESULT_ERROR_INVALID_ARGUMENT";
    case invalid_null_handle:
      return "ZE_RESULT_ERROR_INVALID_NULL_HANDLE";
    case handle_object_in_use:
      return "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE";
    case invalid_null_pointer:
      return "ZE_RESULT_ERROR_INVALID_NULL_POINTER";
    case invalid_size:
      return "ZE_RESULT_ERROR_INVALID_SIZE";
    case unsupported_size:
      return "ZE_RESULT_ERROR_UNSUPPORTED_SIZE";
    case invalid_enumeration:
      return "ZE_RESULT_ERROR_INVALID_ENUMERATION";
    case unsupported_enumeration:
      return "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION";
    case invalid_native_binary:
      return "ZE_RESULT_ERROR_INVALID_NATIVE_BINARY";
    case invalid_kernel_name:
      return "ZE_RESULT_ERROR_INVALID_KERNEL_NAME";
    case unknown:
      return "ZE_RESULT_ERROR_UNKNOWN";
    default:
      return "an error";
  }
}

}  // namespace

std::string table::explain(result code, driver* of) const {
  std::string text = fmt::format("{} ({:#x})", name_of(code), code);
  const char* message = nullptr;
  if (of != nullptr && last_error != nullptr && last_error(of, &message) == success && message != nullptr &&
      *message != '\0')
    text += fmt::format(": {}", message);
  return text;
}

const table* load(std::string& why) {
  return gpu::detail::load_library("TUTTI_LEVEL_ZERO_LIBRARY", "libze_loader.so.1", why, &open);
}

}  // namespace tutti::level_zero::abi
