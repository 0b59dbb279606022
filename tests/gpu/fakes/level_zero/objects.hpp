// SPDX-License-Identifier: Apache-2.0
// A driver for Level Zero on the queues of emulated devices; this header has its objects. The real loader
// opens it (ZE_ENABLE_ALT_DRIVERS), with its layers if they are requested. It is stricter than a GPU to find
// mistakes: it counts what the specification leaves undefined. The host cannot access device memory, pageable
// memory is an illegal address, and lists without the in-order flag lose any order that no barrier requests.
#pragma once

#include "emulated/device_queues.hpp"
#include "live_handles.hpp"
#include "native_kernel.hpp"

#include <level_zero/ze_api.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define TUTTI_EXPORT extern "C" __attribute__((visibility("default")))

struct _ze_device_handle_t {
  std::unique_ptr<tutti::emulated::device_queues> queues;
  int ordinal = 0;
};
struct _ze_driver_handle_t {};
struct _ze_context_handle_t {};

struct _ze_event_pool_handle_t {
  std::vector<bool> taken;
  int live = 0;
};
struct _ze_event_handle_t {
  tutti::emulated::device_queues::word signalled{0};
  std::atomic<int> uses{0};  // commands that still refer to it
  ze_event_pool_handle_t pool = nullptr;
  std::uint32_t index = 0;
};

struct _ze_command_list_handle_t {
  // Addresses are reused at once, on any thread, as allocators may do.
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;

  ze_device_handle_t device = nullptr;
  tutti::emulated::device_queues::queue* queue = nullptr;  // null if the list does not keep the order
  tutti::emulated::device_queues::event barrier;           // then: the last barrier
  std::vector<tutti::emulated::device_queues::event> since_barrier;  // and the commands after it
  std::atomic<int> pending{0};
  std::atomic<bool> appending{false};
};

struct _ze_module_handle_t {
  void* library = nullptr;
  std::atomic<int> kernels{0};
};
struct _ze_module_build_log_handle_t {
  std::string text;
};
struct _ze_kernel_handle_t {
  ze_module_handle_t of = nullptr;
  tutti::fakes::native_kernel* function = nullptr;
  std::uint32_t group_size = 1;
  std::vector<std::vector<std::byte>> arguments;
};

namespace tutti::fakes {

inline constexpr int devices = 2;

// State of the driver. Its live handles are contexts, lists, pools, events, modules and kernels.
struct state : fakes::live_handles {
  std::mutex mutex;
  _ze_driver_handle_t driver;
  std::array<_ze_device_handle_t, devices> gpus;
  std::set<const void*> shared;  // allocations of zeMemAllocShared
  // Memory of another process: its device, and the open file whose lock marks it as in use.
  struct opened_memory {
    ze_device_handle_t on = nullptr;
    int lock = -1;
  };
  std::map<void*, opened_memory> opened;
  // Destroyed objects that running commands still refer to.
  std::vector<std::unique_ptr<_ze_command_list_handle_t>> ended_lists;
  std::vector<std::unique_ptr<_ze_event_handle_t>> ended_events;
  std::atomic<bool> refuses_barriers{false};  // as if the driver had no memory for them
  bool in_order = false;                      // version 1.7, whose lists can keep the order; otherwise 1.4
  std::uint64_t misuses = 0;
  std::string misuse = "none";

  state();
  void reset(std::uint64_t adversary, std::uint64_t delay_us, bool keeps_order);
  ze_result_t misused(std::string what, ze_result_t code = ZE_RESULT_ERROR_INVALID_ARGUMENT);
};
state& global();

// Whether another process has the block open.
bool open_elsewhere(const emulated::arena& memory, const emulated::arena::block& block);

// The driver's functions, which tables.cpp puts into the tables of the loader.
ze_result_t init(ze_init_flags_t);
ze_result_t driver_get(std::uint32_t*, ze_driver_handle_t*);
ze_result_t driver_api_version(ze_driver_handle_t, ze_api_version_t*);
ze_result_t driver_properties(ze_driver_handle_t, ze_driver_properties_t*);
ze_result_t driver_ipc_properties(ze_driver_handle_t, ze_driver_ipc_properties_t*);
ze_result_t driver_extensions(ze_driver_handle_t, std::uint32_t*, ze_driver_extension_properties_t*);
ze_result_t driver_extension_address(ze_driver_handle_t, const char*, void**);
ze_result_t device_get(ze_driver_handle_t, std::uint32_t*, ze_device_handle_t*);
ze_result_t device_subdevices(ze_device_handle_t, std::uint32_t*, ze_device_handle_t*);
ze_result_t device_properties(ze_device_handle_t, ze_device_properties_t*);
ze_result_t device_queue_groups(ze_device_handle_t, std::uint32_t*, ze_command_queue_group_properties_t*);
ze_result_t device_access_peer(ze_device_handle_t, ze_device_handle_t, ze_bool_t*);
ze_result_t device_status(ze_device_handle_t);
ze_result_t context_create(ze_driver_handle_t, const ze_context_desc_t*, ze_context_handle_t*);
ze_result_t context_destroy(ze_context_handle_t);
ze_result_t context_status(ze_context_handle_t);
ze_result_t alloc_device(ze_context_handle_t, const ze_device_mem_alloc_desc_t*, std::size_t, std::size_t,
                         ze_device_handle_t, void**);
ze_result_t alloc_host(ze_context_handle_t, const ze_host_mem_alloc_desc_t*, std::size_t, std::size_t,
                       void**);
ze_result_t alloc_shared(ze_context_handle_t, const ze_device_mem_alloc_desc_t*,
                         const ze_host_mem_alloc_desc_t*, std::size_t, std::size_t, ze_device_handle_t,
                         void**);
ze_result_t free_memory(ze_context_handle_t, void*);
ze_result_t memory_properties(ze_context_handle_t, const void*, ze_memory_allocation_properties_t*,
                              ze_device_handle_t*);
ze_result_t address_range(ze_context_handle_t, const void*, void**, std::size_t*);
ze_result_t ipc_name(ze_context_handle_t, const void*, ze_ipc_mem_handle_t*);
ze_result_t ipc_open(ze_context_handle_t, ze_device_handle_t, ze_ipc_mem_handle_t, ze_ipc_memory_flags_t,
                     void**);
ze_result_t ipc_close(ze_context_handle_t, const void*);

ze_result_t list_create(ze_context_handle_t, ze_device_handle_t, const ze_command_queue_desc_t*,
                        ze_command_list_handle_t*);
ze_result_t list_destroy(ze_command_list_handle_t);
ze_result_t append_barrier(ze_command_list_handle_t, ze_event_handle_t, std::uint32_t, ze_event_handle_t*);
ze_result_t append_copy(ze_command_list_handle_t, void*, const void*, std::size_t, ze_event_handle_t,
                        std::uint32_t, ze_event_handle_t*);
ze_result_t append_fill(ze_command_list_handle_t, void*, const void*, std::size_t, std::size_t,
                        ze_event_handle_t, std::uint32_t, ze_event_handle_t*);
ze_result_t append_signal(ze_command_list_handle_t, ze_event_handle_t);
ze_result_t append_wait(ze_command_list_handle_t, std::uint32_t, ze_event_handle_t*);
ze_result_t append_launch(ze_command_list_handle_t, ze_kernel_handle_t, const ze_group_count_t*,
                          ze_event_handle_t, std::uint32_t, ze_event_handle_t*);

ze_result_t pool_create(ze_context_handle_t, const ze_event_pool_desc_t*, std::uint32_t, ze_device_handle_t*,
                        ze_event_pool_handle_t*);
ze_result_t pool_destroy(ze_event_pool_handle_t);
ze_result_t event_create(ze_event_pool_handle_t, const ze_event_desc_t*, ze_event_handle_t*);
ze_result_t event_destroy(ze_event_handle_t);
ze_result_t event_signal(ze_event_handle_t);
ze_result_t event_reset(ze_event_handle_t);
ze_result_t event_query(ze_event_handle_t);
ze_result_t event_synchronize(ze_event_handle_t, std::uint64_t timeout_ns);

ze_result_t module_create(ze_context_handle_t, ze_device_handle_t, const ze_module_desc_t*,
                          ze_module_handle_t*, ze_module_build_log_handle_t*);
ze_result_t module_destroy(ze_module_handle_t);
ze_result_t build_log_text(ze_module_build_log_handle_t, std::size_t*, char*);
ze_result_t build_log_destroy(ze_module_build_log_handle_t);
ze_result_t kernel_create(ze_module_handle_t, const ze_kernel_desc_t*, ze_kernel_handle_t*);
ze_result_t kernel_destroy(ze_kernel_handle_t);
ze_result_t kernel_group_size(ze_kernel_handle_t, std::uint32_t, std::uint32_t, std::uint32_t);
ze_result_t kernel_argument(ze_kernel_handle_t, std::uint32_t, std::size_t, const void*);
ze_result_t kernel_indirect_access(ze_kernel_handle_t, ze_kernel_indirect_access_flags_t);

}  // namespace tutti::fakes
