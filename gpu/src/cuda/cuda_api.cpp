// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_api.hpp"

#include "device/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::cuda::abi {
namespace {

using gpu::detail::find_call;
using gpu::detail::find_required_call;
using gpu::detail::reason_of_loader;
using opened = gpu::detail::opened_library<table>;

opened open(const std::string& path) {
  opened o;
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    o.why = fmt::format(
        "{} cannot be opened ({}): NVIDIA's driver is not installed, or this container has no access to it "
        "(TUTTI_CUDA_LIBRARY names another file)",
        path, reason_of_loader());
    return o;
  }
  auto calls = std::make_unique<table>();
  std::string missing;
#define TUTTI_CUDA_FIND(member, symbol, parameters) \
  find_required_call(library, symbol, calls->member, missing);
  TUTTI_CUDA_CALLS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  if (!missing.empty()) {
    o.why = fmt::format("{} lacks {}: NVIDIA's driver is older than 515 (CUDA 11.7), which tutti needs", path,
                        missing);
    return o;
  }
#define TUTTI_CUDA_FIND(member, symbol, parameters) find_call(library, symbol, calls->member);
  TUTTI_CUDA_OPTIONAL_CALLS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  if (const result code = calls->init(0); code != success) {
    o.why = fmt::format("cuInit of {}: {}", path, calls->explain(code));
    if (code == error_no_device)
      o.why += ": no GPU is visible here (CUDA_VISIBLE_DEVICES, the container's devices)";
    return o;
  }
  calls->driver_version(&calls->version);
  if (calls->devices() == 0) {
    o.why = fmt::format("{} sees no GPU (CUDA_VISIBLE_DEVICES, the container's devices)", path);
    return o;
  }
  o.calls = std::move(calls);
  return o;
}

}  // namespace

std::string table::explain(result code) const {
  const char* name = nullptr;
  const char* message = nullptr;
  if (error_name(code, &name) != success || name == nullptr) name = "unknown error";
  if (error_string(code, &message) != success || message == nullptr) message = "";
  return fmt::format("{} ({}): {}", name, code, message);
}

const table* load(std::string& why) {
  return gpu::detail::load_library("TUTTI_CUDA_LIBRARY", "libcuda.so.1", why, &open);
}

}  // namespace tutti::cuda::abi
