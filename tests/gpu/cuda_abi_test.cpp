// SPDX-License-Identifier: Apache-2.0
// The declarations of CUDA's driver API agree with cuda.h, if that is installed.
#include "cuda/cuda_api.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#if defined(TUTTI_HAVE_CUDA_H)
#include <cuda.h>

#include <type_traits>

namespace abi = tutti::cuda::abi;

namespace {

// Parameters match if they have the same size and alignment, and both or neither are pointers, or numbers.
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
SAME(init, cuInit);
SAME(device_count, cuDeviceGetCount);
SAME(device_get, cuDeviceGet);
SAME(device_name, cuDeviceGetName);
SAME(device_uuid, cuDeviceGetUuid);
SAME(device_attribute, cuDeviceGetAttribute);
SAME(retain, cuDevicePrimaryCtxRetain);
SAME(release, cuDevicePrimaryCtxRelease);
SAME(push, cuCtxPushCurrent);
SAME(pop, cuCtxPopCurrent);
SAME(priorities, cuCtxGetStreamPriorityRange);
SAME(error_name, cuGetErrorName);
SAME(error_string, cuGetErrorString);
SAME(alloc, cuMemAlloc);
SAME(free, cuMemFree);
SAME(host_alloc, cuMemHostAlloc);
SAME(host_free, cuMemFreeHost);
SAME(host_register, cuMemHostRegister);
SAME(host_unregister, cuMemHostUnregister);
SAME(pointer_attributes, cuPointerGetAttributes);
SAME(copy, cuMemcpyAsync);
SAME(fill, cuMemsetD8Async);
SAME(stream_create, cuStreamCreateWithPriority);
SAME(stream_destroy, cuStreamDestroy);
SAME(stream_query, cuStreamQuery);
SAME(stream_wait, cuStreamWaitEvent);
SAME(stream_capturing, cuStreamIsCapturing);
SAME(event_create, cuEventCreate);
SAME(event_destroy, cuEventDestroy);
SAME(event_record, cuEventRecord);
SAME(event_query, cuEventQuery);
SAME(call_host, cuLaunchHostFunc);
SAME(module_load, cuModuleLoadData);
SAME(module_unload, cuModuleUnload);
SAME(module_function, cuModuleGetFunction);
SAME(launch, cuLaunchKernel);
SAME(capture_mode, cuThreadExchangeStreamCaptureMode);
SAME(write_value, cuStreamWriteValue64);
SAME(wait_value, cuStreamWaitValue64);
SAME(ipc_name_memory, cuIpcGetMemHandle);
SAME(ipc_open_memory, cuIpcOpenMemHandle);
SAME(ipc_close_memory, cuIpcCloseMemHandle);
SAME(ipc_name_event, cuIpcGetEventHandle);
SAME(ipc_open_event, cuIpcOpenEventHandle);

static_assert(abi::error_no_device == CUDA_ERROR_NO_DEVICE && abi::error_not_ready == CUDA_ERROR_NOT_READY &&
              abi::error_invalid_handle == CUDA_ERROR_INVALID_HANDLE &&
              abi::error_not_found == CUDA_ERROR_NOT_FOUND &&
              abi::error_already_registered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
              abi::error_not_supported == CUDA_ERROR_NOT_SUPPORTED &&
              abi::error_not_permitted == CUDA_ERROR_NOT_PERMITTED &&
              abi::error_unknown == CUDA_ERROR_UNKNOWN &&
              abi::error_out_of_memory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(abi::attribute_can_use_64_bit_stream_mem_ops ==
                  CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS &&
              abi::attribute_multiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              abi::attribute_mps_enabled == CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
static_assert(abi::pointer_memory_type == CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
              abi::pointer_is_managed == CU_POINTER_ATTRIBUTE_IS_MANAGED &&
              abi::pointer_device_ordinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
              abi::pointer_range_start == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR &&
              abi::pointer_range_size == CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(abi::memory_type_host == CU_MEMORYTYPE_HOST && abi::memory_type_device == CU_MEMORYTYPE_DEVICE);
static_assert(abi::stream_non_blocking == CU_STREAM_NON_BLOCKING &&
              abi::event_disable_timing == CU_EVENT_DISABLE_TIMING &&
              abi::event_interprocess == CU_EVENT_INTERPROCESS &&
              abi::ipc_lazy_peer_access == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS &&
              abi::wait_value_geq == CU_STREAM_WAIT_VALUE_GEQ &&
              abi::host_portable == CU_MEMHOSTALLOC_PORTABLE &&
              abi::host_device_map == CU_MEMHOSTALLOC_DEVICEMAP &&
              abi::host_portable == CU_MEMHOSTREGISTER_PORTABLE &&
              abi::host_device_map == CU_MEMHOSTREGISTER_DEVICEMAP);
static_assert(abi::capture_none == CU_STREAM_CAPTURE_STATUS_NONE &&
              abi::capture_mode_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);

}  // namespace

TEST_CASE("CUDA's declarations are as ours") { CHECK(sizeof(CUuuid) == sizeof(abi::uuid)); }

#else

TEST_CASE("CUDA's declarations are as ours") { TUTTI_SKIP("cuda.h is not installed: checked where it is"); }

#endif
