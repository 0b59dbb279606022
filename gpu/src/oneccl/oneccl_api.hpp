// SPDX-License-Identifier: Apache-2.0
// The part of oneCCL's C interface that tutti uses, declared here: the library is opened at run time. A test
// compares the declarations with oneapi/ccl.h if that is installed.
#pragma once

#include "comm/vendor_library.hpp"
#include "device/library.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::oneccl::abi {

using namespace gpu::vendor_abi;
using gpu::vendor_abi::result;

struct communicator;
struct unique_id {
  char bytes[4096];
};

inline constexpr result plugin_exception = 11, not_implemented = 12;

// X(member, symbol, parameters)
#define TUTTI_ONECCL_CALLS(X)                                                                               \
  X(get_version, onecclGetVersion, (int*))                                                                  \
  X(get_unique_id, onecclGetUniqueId, (unique_id*))                                                         \
  X(set_device, onecclSetDevice, (std::uint32_t))                                                           \
  X(init, onecclCommInitRank, (communicator**, std::size_t, unique_id, int))                                \
  X(destroy, onecclCommDestroy, (communicator*))                                                            \
  X(all_reduce, onecclAllReduce, (void*, void*, std::size_t, int, int, communicator*, void*))               \
  X(reduce, onecclReduce, (const void*, void*, std::size_t, int, int, int, communicator*, void*))           \
  X(broadcast, onecclBroadcast, (const void*, void*, std::size_t, int, int, communicator*, void*))          \
  X(reduce_scatter, onecclReduceScatter, (const void*, void*, std::size_t, int, int, communicator*, void*)) \
  X(scatter, onecclScatter, (const void*, void*, std::size_t, int, int, communicator*, void*))              \
  X(all_gather, onecclAllGather, (const void*, void*, std::size_t, int, communicator*, void*))              \
  X(all_to_all, onecclAllToAll, (const void*, void*, std::size_t, int, communicator*, void*))               \
  X(all_to_all_v, onecclAllToAllV,                                                                          \
    (const void*, const std::size_t*, void*, const std::size_t*, int, communicator*, void*))                \
  X(make_premul_sum, onecclRedOpCreatePreMulSum, (int*, void*, int, int, communicator*))                    \
  X(destroy_operation, onecclRedOpDestroy, (int, communicator*))

struct table {
  TUTTI_ONECCL_CALLS(TUTTI_CALL_MEMBER)
  const char* (*error_string)(result) = nullptr;
  const char* (*last_error)(communicator*) = nullptr;
  int version = 0;  // 20220200: 2022.2.0

  std::string explain(result code, communicator* c) const {
    return gpu::vendor_abi::explain("oneCCL", version, code, error_string(code),
                                    last_error == nullptr || c == nullptr ? nullptr : last_error(c));
  }
};

inline std::unique_ptr<const table> open_library(const std::string& told) {
  gpu::impl::library in(
      told, {"libccl.so.2"},
      "install oneCCL (oneccl and oneccl-cpu of PyPI; ./run setup-oneccl), or say where it is with "
      "TUTTI_ONECCL_LIBRARY; tutti::communicator needs none for memory of devices (gpu::open)");
  auto calls = std::make_unique<table>();
  TUTTI_ONECCL_CALLS(TUTTI_REQUIRE_CALL)
  in.require("onecclGetErrorString", calls->error_string);
  in.find("onecclGetLastError", calls->last_error);
  if (!in.missing.empty())
    throw error(errc::not_supported,
                fmt::format("{} is no oneCCL 2021.17 or later: it lacks {}", in.name, in.missing));
  calls->get_version(&calls->version);
  return calls;
}

// Opens the library of TUTTI_ONECCL_LIBRARY, one already loaded, or libccl.so.2.
inline const gpu::impl::opened_library<table>& load() {
  return gpu::impl::load_library("TUTTI_ONECCL_LIBRARY", &open_library);
}

}  // namespace tutti::oneccl::abi
