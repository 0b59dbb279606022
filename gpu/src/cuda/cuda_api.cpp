// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_api.hpp"

#include <fmt/format.h>

namespace tutti::cuda::abi {
namespace {

std::unique_ptr<const table> open(const std::string& told) {
  gpu::detail::library in(told, {"libcuda.so.1"},
                          "NVIDIA's driver is not installed, or this container has no access to it "
                          "(TUTTI_CUDA_LIBRARY names another file)");
  auto calls = std::make_unique<table>();
  TUTTI_CUDA_CALLS(TUTTI_REQUIRE_CALL)
  TUTTI_CUDA_OPTIONAL_CALLS(TUTTI_FIND_CALL)
  if (!in.missing.empty())
    throw error(errc::not_supported,
                fmt::format("{} lacks {}: NVIDIA's driver is older than 515 (CUDA 11.7), which tutti needs",
                            in.name, in.missing));
  // A copy behind a closed gate holds up the copies of the other streams of its hardware queue. With 32 queues
  // no two of a program's few streams share one. CUDA reads the variable once.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
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

}  // namespace

std::string table::explain(result code) const {
  const char* name = nullptr;
  const char* message = nullptr;
  if (error_name(code, &name) != success || name == nullptr) name = "unknown error";
  if (error_string(code, &message) != success || message == nullptr) message = "";
  return fmt::format("{} ({}): {}", name, code, message);
}

const gpu::detail::opened_library<table>& load() {
  return gpu::detail::load_library("TUTTI_CUDA_LIBRARY", &open);
}

}  // namespace tutti::cuda::abi
