// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_api.hpp"

#include "device/library.hpp"

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
  void* const library =
      gpu::detail::open_library(told, {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"});
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

std::string table::explain(result code, communicator* c) const {
  return gpu::vendor_abi::explain("NCCL", version, code, error_string(code),
                                  last_error == nullptr ? nullptr : last_error(c));
}

const table* load(std::string& why) {
  return gpu::detail::load_library("TUTTI_NCCL_LIBRARY", "", why, &open);
}

}  // namespace tutti::nccl::abi
