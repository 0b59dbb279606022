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

  std::string explain(result code, communicator* c) const;
};

// Opens the library of TUTTI_ONECCL_LIBRARY, one already loaded, or libccl.so.2.
const gpu::detail::opened_library<table>& load();

}  // namespace tutti::oneccl::abi
