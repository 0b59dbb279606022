// SPDX-License-Identifier: Apache-2.0
#include "nccl/nccl_api.hpp"

#include <fmt/format.h>

namespace tutti::nccl::abi {
namespace {

std::unique_ptr<const table> open(const std::string& told) {
  gpu::detail::library in(
      told, {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"},
      "install NCCL (libnccl2, or nvidia-nccl of PyPI), or say where it is with TUTTI_NCCL_LIBRARY; "
      "tutti::communicator needs none for memory of devices (gpu::open)");
  auto calls = std::make_unique<table>();
  TUTTI_NCCL_CALLS(TUTTI_REQUIRE_CALL)
  TUTTI_NCCL_OPTIONAL_CALLS(TUTTI_FIND_CALL)
  in.require("ncclGetErrorString", calls->error_string);
  in.find("ncclGetLastError", calls->last_error);
  if (in.missing.empty()) calls->get_version(&calls->version);
  if (!in.missing.empty() || calls->version < oldest_version)
    throw error(errc::not_supported,
                fmt::format("NCCL {} is too old: tutti needs 2.18 or later{}{}", version_text(calls->version),
                            in.missing.empty() ? "" : "; it lacks ", in.missing));
  return calls;
}

}  // namespace

std::string table::explain(result code, communicator* c) const {
  return gpu::vendor_abi::explain("NCCL", version, code, error_string(code),
                                  last_error == nullptr ? nullptr : last_error(c));
}

const gpu::detail::opened_library<table>& load() {
  return gpu::detail::load_library("TUTTI_NCCL_LIBRARY", &open);
}

}  // namespace tutti::nccl::abi
