// SPDX-License-Identifier: Apache-2.0
// The declarations of Level Zero agree with ze_api.h, if that is installed.
#include "level_zero/level_zero_api.hpp"
#include "support/skip.hpp"

#include <doctest/doctest.h>

#if defined(TUTTI_HAVE_ZE_API_H)
#include <level_zero/ze_api.h>

#include <type_traits>

namespace abi = tutti::level_zero::abi;

namespace {

template <class T>
inline constexpr bool number = std::is_integral_v<T> || std::is_enum_v<T>;
template <class Ours, class Theirs>
inline constexpr bool alike =
    sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> && number<Ours> == number<Theirs>;
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
#define SAME_CALL(member, symbol, parameters) \
  static_assert(same_call<decltype(abi::table::member), decltype(&::symbol)>, #symbol);
TUTTI_LEVEL_ZERO_CALLS(SAME_CALL)

#define SAME_PLACE(ours, our_member, theirs, their_member)                      \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) && \
                    sizeof(ours::our_member) == sizeof(theirs::their_member),   \
                #theirs "." #their_member)
#define SAME_STRUCTURE(ours, theirs, number)                                                            \
  static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs), #theirs);           \
  static_assert(static_cast<unsigned>(ours{}.begin.type_of) == static_cast<unsigned>(number), #theirs); \
  static_assert(offsetof(ours, begin) == 0);                                                            \
  SAME_PLACE(abi::header<0>, type_of, theirs, stype);                                                   \
  SAME_PLACE(abi::header<0>, next, theirs, pNext)

SAME_STRUCTURE(abi::ipc_properties, ze_driver_ipc_properties_t, ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES);
SAME_PLACE(abi::ipc_properties, flags, ze_driver_ipc_properties_t, flags);
static_assert(sizeof(abi::ipc_memory) == sizeof(ze_ipc_mem_handle_t));
SAME_STRUCTURE(abi::device_properties, ze_device_properties_t, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
SAME_PLACE(abi::device_properties, type, ze_device_properties_t, type);
SAME_PLACE(abi::device_properties, max_allocation, ze_device_properties_t, maxMemAllocSize);
SAME_PLACE(abi::device_properties, timer_resolution, ze_device_properties_t, timerResolution);
SAME_PLACE(abi::device_properties, uuid, ze_device_properties_t, uuid);
SAME_PLACE(abi::device_properties, name, ze_device_properties_t, name);
SAME_STRUCTURE(abi::queue_group_properties, ze_command_queue_group_properties_t,
               ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES);
SAME_PLACE(abi::queue_group_properties, flags, ze_command_queue_group_properties_t, flags);
SAME_PLACE(abi::queue_group_properties, queues, ze_command_queue_group_properties_t, numQueues);
SAME_STRUCTURE(abi::context_desc, ze_context_desc_t, ZE_STRUCTURE_TYPE_CONTEXT_DESC);
SAME_PLACE(abi::context_desc, flags, ze_context_desc_t, flags);
SAME_STRUCTURE(abi::queue_desc, ze_command_queue_desc_t, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
SAME_PLACE(abi::queue_desc, ordinal, ze_command_queue_desc_t, ordinal);
SAME_PLACE(abi::queue_desc, index, ze_command_queue_desc_t, index);
SAME_PLACE(abi::queue_desc, flags, ze_command_queue_desc_t, flags);
SAME_PLACE(abi::queue_desc, mode, ze_command_queue_desc_t, mode);
SAME_PLACE(abi::queue_desc, priority, ze_command_queue_desc_t, priority);
SAME_STRUCTURE(abi::event_pool_desc, ze_event_pool_desc_t, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
SAME_PLACE(abi::event_pool_desc, flags, ze_event_pool_desc_t, flags);
SAME_PLACE(abi::event_pool_desc, count, ze_event_pool_desc_t, count);
SAME_STRUCTURE(abi::event_desc, ze_event_desc_t, ZE_STRUCTURE_TYPE_EVENT_DESC);
SAME_PLACE(abi::event_desc, index, ze_event_desc_t, index);
SAME_PLACE(abi::event_desc, signal, ze_event_desc_t, signal);
SAME_PLACE(abi::event_desc, wait, ze_event_desc_t, wait);
SAME_STRUCTURE(abi::device_memory_desc, ze_device_mem_alloc_desc_t, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
SAME_PLACE(abi::device_memory_desc, flags, ze_device_mem_alloc_desc_t, flags);
SAME_PLACE(abi::device_memory_desc, ordinal, ze_device_mem_alloc_desc_t, ordinal);
SAME_STRUCTURE(abi::host_memory_desc, ze_host_mem_alloc_desc_t, ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
SAME_PLACE(abi::host_memory_desc, flags, ze_host_mem_alloc_desc_t, flags);
SAME_STRUCTURE(abi::memory_properties, ze_memory_allocation_properties_t,
               ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
SAME_PLACE(abi::memory_properties, type, ze_memory_allocation_properties_t, type);
SAME_PLACE(abi::memory_properties, id, ze_memory_allocation_properties_t, id);
SAME_PLACE(abi::memory_properties, page_size, ze_memory_allocation_properties_t, pageSize);
SAME_STRUCTURE(abi::module_desc, ze_module_desc_t, ZE_STRUCTURE_TYPE_MODULE_DESC);
SAME_PLACE(abi::module_desc, format, ze_module_desc_t, format);
SAME_PLACE(abi::module_desc, bytes, ze_module_desc_t, inputSize);
SAME_PLACE(abi::module_desc, image, ze_module_desc_t, pInputModule);
SAME_PLACE(abi::module_desc, build_flags, ze_module_desc_t, pBuildFlags);
SAME_PLACE(abi::module_desc, constants, ze_module_desc_t, pConstants);
SAME_STRUCTURE(abi::kernel_desc, ze_kernel_desc_t, ZE_STRUCTURE_TYPE_KERNEL_DESC);
SAME_PLACE(abi::kernel_desc, flags, ze_kernel_desc_t, flags);
SAME_PLACE(abi::kernel_desc, name, ze_kernel_desc_t, pKernelName);
static_assert(sizeof(abi::group_count) == sizeof(ze_group_count_t));

// Compares numbers, because the enumerations have different types.
constexpr bool same(std::uint32_t ours, long long theirs) {
  return ours == static_cast<std::uint32_t>(theirs);
}
#define SAME_RESULT(name, number, symbol) static_assert(same(abi::name, symbol), #symbol);
TUTTI_LEVEL_ZERO_RESULTS(SAME_RESULT)
static_assert(
    same(abi::gpu_only, ZE_INIT_FLAG_GPU_ONLY) && same(abi::type_gpu, ZE_DEVICE_TYPE_GPU) &&
    same(abi::group_compute, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) &&
    same(abi::mode_asynchronous, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS) &&
    same(abi::priority_normal, ZE_COMMAND_QUEUE_PRIORITY_NORMAL) &&
    same(abi::priority_high, ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH) &&
    same(abi::pool_host_visible, ZE_EVENT_POOL_FLAG_HOST_VISIBLE) &&
    same(abi::scope_host, ZE_EVENT_SCOPE_FLAG_HOST) && same(abi::memory_unknown, ZE_MEMORY_TYPE_UNKNOWN) &&
    same(abi::memory_host, ZE_MEMORY_TYPE_HOST) && same(abi::memory_device, ZE_MEMORY_TYPE_DEVICE) &&
    same(abi::memory_shared, ZE_MEMORY_TYPE_SHARED) && same(abi::format_spirv, ZE_MODULE_FORMAT_IL_SPIRV) &&
    same(abi::format_native, ZE_MODULE_FORMAT_NATIVE) && same(abi::version_1_7, ZE_MAKE_VERSION(1, 7)) &&
    same(abi::ipc_of_memory, ZE_IPC_PROPERTY_FLAG_MEMORY));
static_assert(same(abi::indirect_all, ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST |
                                          ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
                                          ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED));

}  // namespace

TEST_CASE("the declarations of Level Zero are those of ze_api.h") {
  MESSAGE("compared while this was compiled");
}
#else
TEST_CASE("the declarations of Level Zero are those of ze_api.h") {
  TUTTI_SKIP("no ze_api.h (install libze-dev)");
}
#endif
