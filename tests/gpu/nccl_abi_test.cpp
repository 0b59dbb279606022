// SPDX-License-Identifier: Apache-2.0
// The declarations of NCCL agree with nccl.h, if that is installed.
#include "nccl/nccl_api.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#if defined(TUTTI_HAVE_NCCL_H)
#include <nccl.h>

#include <type_traits>

namespace abi = tutti::nccl::abi;

namespace {

template <class Ours, class Theirs>
inline constexpr bool alike = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
                              std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                              (std::is_integral_v<Ours> || std::is_enum_v<Ours>) ==
                                  (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
template <class Ours, class Theirs>
inline constexpr bool same_call = false;
template <class... A, class R, class... B>
inline constexpr bool same_call<abi::result (*)(A...), R (*)(B...)> = [] {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return sizeof(R) == sizeof(abi::result) && (alike<A, B> && ...);
  }
}();

#define SAME(member, call) static_assert(same_call<decltype(abi::table::member), decltype(&call)>, #call)
SAME(get_version, ncclGetVersion);
SAME(get_unique_id, ncclGetUniqueId);
SAME(init, ncclCommInitRank);
SAME(finalize, ncclCommFinalize);
SAME(destroy, ncclCommDestroy);
SAME(abort, ncclCommAbort);
SAME(all_reduce, ncclAllReduce);
SAME(broadcast, ncclBroadcast);
SAME(reduce, ncclReduce);
SAME(all_gather, ncclAllGather);
SAME(reduce_scatter, ncclReduceScatter);
SAME(send, ncclSend);
SAME(receive, ncclRecv);
SAME(group_start, ncclGroupStart);
SAME(group_end, ncclGroupEnd);
SAME(make_premul_sum, ncclRedOpCreatePreMulSum);
SAME(destroy_operation, ncclRedOpDestroy);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
SAME(memory_allocate, ncclMemAlloc);
SAME(memory_free, ncclMemFree);
SAME(register_memory, ncclCommRegister);
SAME(deregister_memory, ncclCommDeregister);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
SAME(revoke, ncclCommRevoke);
#endif

static_assert(abi::success == ncclSuccess && abi::unhandled_cuda_error == ncclUnhandledCudaError &&
              abi::system_error == ncclSystemError && abi::internal_error == ncclInternalError &&
              abi::invalid_argument == ncclInvalidArgument && abi::invalid_usage == ncclInvalidUsage &&
              abi::remote_error == ncclRemoteError && abi::in_progress == ncclInProgress);
static_assert(abi::int8 == ncclInt8 && abi::uint8 == ncclUint8 && abi::int32 == ncclInt32 &&
              abi::uint32 == ncclUint32 && abi::int64 == ncclInt64 && abi::uint64 == ncclUint64 &&
              abi::float16 == ncclFloat16 && abi::float32 == ncclFloat32 && abi::float64 == ncclFloat64 &&
              abi::bfloat16 == ncclBfloat16);
static_assert(abi::sum == ncclSum && abi::product == ncclProd && abi::max == ncclMax && abi::min == ncclMin &&
              abi::average == ncclAvg && abi::host_immediate == ncclScalarHostImmediate);
static_assert(sizeof(abi::unique_id) == sizeof(ncclUniqueId));

}  // namespace

TEST_CASE("NCCL's declarations are as ours") { CHECK(NCCL_VERSION_CODE >= abi::oldest_version); }

#else

TEST_CASE("NCCL's declarations are as ours") { TUTTI_SKIP("nccl.h is not installed: checked where it is"); }

#endif
