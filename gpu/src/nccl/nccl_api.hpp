// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that tutti uses, declared here: the library is opened at run time. A test compares the
// declarations with nccl.h if that is installed.
#pragma once

#include "comm/vendor_library.hpp"
#include "device/library.hpp"

#include <cstddef>
#include <string>

namespace tutti::nccl::abi {

using namespace gpu::vendor_abi;
using gpu::vendor_abi::result;

struct communicator;
struct unique_id {
  char bytes[128];
};

inline constexpr result unhandled_cuda_error = 1, system_error = 2, internal_error = 3, invalid_usage = 5,
                        remote_error = 6, in_progress = 7;
inline constexpr int oldest_version = 21800;

// X(member, symbol, parameters)
#define TUTTI_NCCL_CALLS(X)                                                                               \
  X(get_version, ncclGetVersion, (int*))                                                                  \
  X(get_unique_id, ncclGetUniqueId, (unique_id*))                                                         \
  X(init, ncclCommInitRank, (communicator**, int, unique_id, int))                                        \
  X(finalize, ncclCommFinalize, (communicator*))                                                          \
  X(destroy, ncclCommDestroy, (communicator*))                                                            \
  X(abort, ncclCommAbort, (communicator*))                                                                \
  X(all_reduce, ncclAllReduce, (const void*, void*, std::size_t, int, int, communicator*, void*))         \
  X(broadcast, ncclBroadcast, (const void*, void*, std::size_t, int, int, communicator*, void*))          \
  X(reduce, ncclReduce, (const void*, void*, std::size_t, int, int, int, communicator*, void*))           \
  X(all_gather, ncclAllGather, (const void*, void*, std::size_t, int, communicator*, void*))              \
  X(reduce_scatter, ncclReduceScatter, (const void*, void*, std::size_t, int, int, communicator*, void*)) \
  X(send, ncclSend, (const void*, std::size_t, int, int, communicator*, void*))                           \
  X(receive, ncclRecv, (void*, std::size_t, int, int, communicator*, void*))                              \
  X(group_start, ncclGroupStart, ())                                                                      \
  X(group_end, ncclGroupEnd, ())                                                                          \
  X(make_premul_sum, ncclRedOpCreatePreMulSum, (int*, void*, int, int, communicator*))                    \
  X(destroy_operation, ncclRedOpDestroy, (int, communicator*))

#define TUTTI_NCCL_OPTIONAL_CALLS(X)                                                \
  X(memory_allocate, ncclMemAlloc, (void**, std::size_t)) /* 2.19 */                \
  X(memory_free, ncclMemFree, (void*))                                              \
  X(register_memory, ncclCommRegister, (communicator*, void*, std::size_t, void**)) \
  X(deregister_memory, ncclCommDeregister, (communicator*, void*))                  \
  X(revoke, ncclCommRevoke, (communicator*, int)) /* 2.28.7 */

struct table {
  TUTTI_NCCL_CALLS(TUTTI_CALL_MEMBER)
  TUTTI_NCCL_OPTIONAL_CALLS(TUTTI_CALL_MEMBER)
  const char* (*error_string)(result) = nullptr;
  const char* (*last_error)(communicator*) = nullptr;
  int version = 0;  // 22809: 2.28.9

  std::string explain(result code, communicator* c) const {
    return gpu::vendor_abi::explain("NCCL", version, code, error_string(code), last_error(c));
  }
};

inline std::unique_ptr<const table> open_library(const std::string& told) {
  gpu::impl::library in(
      told, {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"},
      "install NCCL (libnccl2, or nvidia-nccl of PyPI), or say where it is with TUTTI_NCCL_LIBRARY; "
      "tutti::communicator needs none for memory of devices (gpu::open)");
  auto calls = std::make_unique<table>();
  TUTTI_NCCL_CALLS(TUTTI_REQUIRE_CALL)
  TUTTI_NCCL_OPTIONAL_CALLS(TUTTI_FIND_CALL)
  in.require("ncclGetErrorString", calls->error_string);
  in.require("ncclGetLastError", calls->last_error);
  if (in.missing.empty()) calls->get_version(&calls->version);
  if (!in.missing.empty() || calls->version < oldest_version)
    throw error(errc::not_supported,
                fmt::format("NCCL {} is too old: tutti needs 2.18 or later{}{}", version_text(calls->version),
                            in.missing.empty() ? "" : "; it lacks ", in.missing));
  return calls;
}

// Opens the library of TUTTI_NCCL_LIBRARY, one that is already loaded (PyTorch's), or libnccl.so.2.
inline const gpu::impl::opened_library<table>& load() {
  return gpu::impl::load_library("TUTTI_NCCL_LIBRARY", &open_library);
}

}  // namespace tutti::nccl::abi
