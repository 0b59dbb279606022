// SPDX-License-Identifier: Apache-2.0
#include "cuda/api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace tutti::cuda::abi {
namespace {

struct opened {
  std::unique_ptr<table> calls;   // null: why not
  std::string why;
};

template <class F>
bool find(void* library, const char* symbol, F*& to) {
  to = reinterpret_cast<F*>(::dlsym(library, symbol));
  return to != nullptr;
}

opened open(const std::string& path) {
  opened o;
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const said = ::dlerror();
    o.why = fmt::format("{} cannot be opened ({}): NVIDIA's driver is not installed, or this container has no access to it "
                        "(TUTTI_CUDA_LIBRARY names another file)",
                        path, said == nullptr ? "no reason given" : said);
    return o;
  }
  auto calls = std::make_unique<table>();
  std::string missing;
#define TUTTI_CUDA_FIND(member, symbol, parameters) \
  if (!find(library, symbol, calls->member)) missing += std::string(missing.empty() ? "" : ", ") + symbol;
  TUTTI_CUDA_CALLS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  if (!missing.empty()) {
    o.why = fmt::format("{} lacks {}: NVIDIA's driver is older than 515 (CUDA 11.7), which tutti needs", path, missing);
    return o;
  }
#define TUTTI_CUDA_FIND(member, symbol, parameters) find(library, symbol, calls->member);
  TUTTI_CUDA_OPTIONAL_CALLS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  if (const result code = calls->init(0); code != success) {
    o.why = fmt::format("cuInit of {}: {}", path, calls->explain(code));
    if (code == error_no_device) o.why += ": no GPU is visible here (CUDA_VISIBLE_DEVICES, the container's devices)";
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
  const char* words = nullptr;
  if (error_name(code, &name) != success || name == nullptr) name = "unknown error";
  if (error_string(code, &words) != success || words == nullptr) words = "";
  return fmt::format("{} ({}): {}", name, code, words);
}

const table* load(std::string& why) {
  static std::mutex mutex;
  static std::map<std::string, opened> all;
  const char* const told = std::getenv("TUTTI_CUDA_LIBRARY");
  const std::string path = told != nullptr && *told != '\0' ? told : "libcuda.so.1";
  const std::lock_guard lock(mutex);
  auto found = all.find(path);
  if (found == all.end()) found = all.emplace(path, open(path)).first;
  why = found->second.why;
  return found->second.calls.get();
}

}  // namespace tutti::cuda::abi
