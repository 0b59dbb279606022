// SPDX-License-Identifier: Apache-2.0
#include "level_zero/level_zero_api.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace tutti::level_zero::abi {
namespace {

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

std::unique_ptr<const table> open(const std::string& told) {
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

const char* name_of(result code) noexcept {
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

}  // namespace

std::string table::explain(result code, driver* of) const {
  std::string text = fmt::format("{} ({:#x})", name_of(code), code);
  const char* message = nullptr;
  if (of != nullptr && last_error != nullptr && last_error(of, &message) == success && message != nullptr &&
      *message != '\0')
    text += fmt::format(": {}", message);
  return text;
}

const gpu::detail::opened_library<table>& load() {
  return gpu::detail::load_library("TUTTI_LEVEL_ZERO_LIBRARY", &open);
}

}  // namespace tutti::level_zero::abi
