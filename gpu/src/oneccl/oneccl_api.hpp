// SPDX-License-Identifier: Apache-2.0
// The part of oneCCL's C interface that tutti uses, by declarations of its own, opened at run time. A test
// compares them with oneapi/ccl.h where that is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tutti/reduce_op.hpp>

namespace tutti::oneccl::abi {

using result = int;
struct communicator;
struct unique_id {
  char bytes[4096];
};

inline constexpr result success = 0, plugin_exception = 11, not_implemented = 12;
inline constexpr int int8 = 0, uint8 = 1, int32 = 2, uint32 = 3, int64 = 4, uint64 = 5, float16 = 6,
                     float32 = 7, float64 = 8, bfloat16 = 9;
inline constexpr int sum = 0, product = 1, max = 2, min = 3, average = 4;
inline constexpr int host_immediate = 1;

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
#define TUTTI_ONECCL_MEMBER(member, symbol, parameters) result(*member) parameters = nullptr;
  TUTTI_ONECCL_CALLS(TUTTI_ONECCL_MEMBER)
#undef TUTTI_ONECCL_MEMBER
  const char* (*error_string)(result) = nullptr;
  const char* (*last_error)(communicator*) = nullptr;
  int version = 0;  // 20220200: 2022.2.0

  std::string explain(result code, communicator* c) const;
};

// TUTTI_ONECCL_LIBRARY, one that the program has loaded already, or libccl.so.2. Null: `why` says why not.
const table* load(std::string& why);
std::string version_text(int version);  // "2022.2.0"

int type_of(element_type type) noexcept;      // -1: oneCCL has no such type
int operation_of(reduce_kind kind) noexcept;  // -1: likewise; avg and premul_sum are made of sum

}  // namespace tutti::oneccl::abi
