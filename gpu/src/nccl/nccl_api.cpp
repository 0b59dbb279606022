// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_api.hpp"

#include "device/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

namespace tutti::nccl::abi {
namespace {

using gpu::detail::find_call;
using gpu::detail::find_required_call;
using gpu::detail::reason_of_loader;
using opened = gpu::detail::opened_library<table>;

opened open(const std::string& told) {
  opened o;
  void* library = nullptr;
  if (!told.empty()) {
    library = ::dlopen(told.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    // Two copies of NCCL in one process know nothing of each other's communicators on a device: the one that
    // is there first.
    library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    for (const char* path : {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"})
      if (library == nullptr) library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    o.why = fmt::format(
        "{} cannot be opened ({}): install NCCL (libnccl2, or nvidia-nccl of PyPI), or say where it is with "
        "TUTTI_NCCL_LIBRARY; tutti::communicator needs none for memory of devices (gpu::open)",
        told.empty() ? "libnccl.so.2" : told, reason_of_loader());
    return o;
  }
  auto calls = std::make_unique<table>();
  std::string missing;
#define TUTTI_NCCL_FIND(member, symbol, parameters) \
  find_required_call(library, symbol, calls->member, missing);
  TUTTI_NCCL_CALLS(TUTTI_NCCL_FIND)
#undef TUTTI_NCCL_FIND
  find_required_call(library, "ncclGetErrorString", calls->error_string, missing);
  if (missing.empty()) calls->get_version(&calls->version);
  if (!missing.empty() || calls->version < oldest_version) {
    o.why = fmt::format("NCCL {} is too old: tutti needs 2.18 or later{}{}", version_text(calls->version),
                        missing.empty() ? "" : "; it lacks ", missing);
    return o;
  }
#define TUTTI_NCCL_FIND(member, symbol, parameters) find_call(library, symbol, calls->member);
  TUTTI_NCCL_OPTIONAL_CALLS(TUTTI_NCCL_FIND)
#undef TUTTI_NCCL_FIND
  find_call(library, "ncclGetLastError", calls->last_error);
  o.calls = std::move(calls);
  return o;
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string table::explain(result code, communicator* c) const {
  const char* const message = error_string(code);
  const char* const more = last_error == nullptr ? nullptr : last_error(c);
  return fmt::format("NCCL {}: {} ({}){}{}", version_text(version), message == nullptr ? "error" : message,
                     code, more == nullptr || *more == '\0' ? "" : ": ", more == nullptr ? "" : more);
}

const table* load(std::string& why) {
  return gpu::detail::load_library("TUTTI_NCCL_LIBRARY", "", why, &open);
}

int type_of(element_type type) noexcept {
  switch (type) {
    case element_type::int8:
      return int8;
    case element_type::boolean:
    case element_type::uint8:
      return uint8;
    case element_type::int32:
      return int32;
    case element_type::uint32:
      return uint32;
    case element_type::int64:
      return int64;
    case element_type::uint64:
      return uint64;
    case element_type::float16:
      return float16;
    case element_type::float32:
      return float32;
    case element_type::float64:
      return float64;
    case element_type::bfloat16:
      return bfloat16;
    default:
      return -1;
  }
}

int operation_of(reduce_kind kind, element_type type) noexcept {
  if (type == element_type::boolean || type_of(type) < 0) return -1;
  switch (kind) {
    case reduce_kind::sum:
      return sum;
    case reduce_kind::product:
      return product;
    case reduce_kind::min:
      return min;
    case reduce_kind::max:
      return max;
    case reduce_kind::avg:
      return average;
    default:
      return -1;
  }
}

}  // namespace tutti::nccl::abi
