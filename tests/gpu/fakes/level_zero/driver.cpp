// SPDX-License-Identifier: Apache-2.0
// Drivers, devices, contexts and memory, and the controls for tests. In processes of jobs,
// TUTTI_FAKE_LEVEL_ZERO_ADVERSARY=SEED sets the adversary.
#include "level_zero/objects.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace tutti::fakes {

using emulated::arena;
using emulated::device_queues;

state& global() {
  static state* const instance = new state;  // never destroyed: the loader may call at exit
  return *instance;
}

state::state() {
  const char* const seed = std::getenv("TUTTI_FAKE_LEVEL_ZERO_ADVERSARY");
  reset(seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10), 0, false);
}

void state::reset(std::uint64_t adversary, std::uint64_t delay_us, bool keeps_order) {
  const std::lock_guard lock(mutex);
  if (const std::size_t left = clear(); left > 0) {
    ++misuses;
    misuse = std::to_string(left) + " handles were never destroyed";
  }
  in_order = keeps_order;
  refuses_barriers = false;
  for (const auto& [memory, o] : opened) ::close(o.lock);
  opened.clear();
  for (int i = 0; i < devices; ++i) {
    emulated::options how;
    how.memory_bytes = std::size_t{64} << 20;
    how.adversary = adversary;
    how.delay = std::chrono::microseconds(delay_us);
    if (adversary != 0) how.workers = 4;
    auto& gpu = gpus[static_cast<std::size_t>(i)];
    gpu.queues = std::make_unique<device_queues>(how);
    gpu.ordinal = i;
  }
  ended_lists.clear();
  ended_events.clear();
}

ze_result_t state::misused(std::string what, ze_result_t code) {
  const std::lock_guard lock(mutex);
  ++misuses;
  misuse = std::move(what);
  return code;
}

// Callers ask once for the number, once for the handles.
template <class T, class Get>
static ze_result_t enumerate(std::uint32_t* count, T* out, std::uint32_t there, Get get) {
  if (*count == 0 || out == nullptr) {
    *count = there;
    return ZE_RESULT_SUCCESS;
  }
  *count = std::min(*count, there);
  for (std::uint32_t i = 0; i < *count; ++i) get(i);
  return ZE_RESULT_SUCCESS;
}

ze_result_t init(ze_init_flags_t) { return ZE_RESULT_SUCCESS; }
ze_result_t driver_get(std::uint32_t* count, ze_driver_handle_t* out) {
  return enumerate(count, out, 1, [&](std::uint32_t i) { out[i] = &global().driver; });
}
ze_result_t driver_api_version(ze_driver_handle_t, ze_api_version_t* version) {
  *version = static_cast<ze_api_version_t>(global().in_order ? ZE_MAKE_VERSION(1, 7) : ZE_MAKE_VERSION(1, 4));
  return ZE_RESULT_SUCCESS;
}
ze_result_t driver_properties(ze_driver_handle_t, ze_driver_properties_t* p) {
  std::memset(&p->uuid, 0, sizeof p->uuid);
  p->driverVersion = 1;
  return ZE_RESULT_SUCCESS;
}
ze_result_t driver_ipc_properties(ze_driver_handle_t, ze_driver_ipc_properties_t* p) {
  p->flags = ZE_IPC_PROPERTY_FLAG_MEMORY;
  return ZE_RESULT_SUCCESS;
}
ze_result_t driver_extensions(ze_driver_handle_t, std::uint32_t* count, ze_driver_extension_properties_t*) {
  *count = 0;
  return ZE_RESULT_SUCCESS;
}
ze_result_t driver_extension_address(ze_driver_handle_t, const char*, void**) {
  return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

ze_result_t device_get(ze_driver_handle_t, std::uint32_t* count, ze_device_handle_t* out) {
  return enumerate(count, out, devices, [&](std::uint32_t i) { out[i] = &global().gpus[i]; });
}
ze_result_t device_subdevices(ze_device_handle_t, std::uint32_t* count, ze_device_handle_t*) {
  *count = 0;
  return ZE_RESULT_SUCCESS;
}
ze_result_t device_properties(ze_device_handle_t d, ze_device_properties_t* p) {
  const ze_structure_type_t type = p->stype;
  void* const next = p->pNext;
  *p = {};
  p->stype = type;
  p->pNext = next;
  p->type = ZE_DEVICE_TYPE_GPU;
  p->maxMemAllocSize = std::size_t{64} << 20;
  p->maxCommandQueuePriority = 1;
  // All processes see the same UUIDs, but each copy of this driver has its own.
  Dl_info here{};
  const std::size_t copy = ::dladdr(reinterpret_cast<const void*>(&global), &here) != 0
                               ? std::hash<std::string>()(here.dli_fname)
                               : 0;
  p->uuid.id[0] = static_cast<std::uint8_t>(d->ordinal + 1);
  std::memcpy(p->uuid.id + 8, &copy, sizeof copy);
  std::strncpy(p->name, "stand-in", sizeof p->name - 1);
  return ZE_RESULT_SUCCESS;
}
ze_result_t device_queue_groups(ze_device_handle_t, std::uint32_t* count,
                                ze_command_queue_group_properties_t* out) {
  // The first group only copies, as on many GPUs.
  return enumerate(count, out, 2, [&](std::uint32_t i) {
    out[i].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY |
                   (i == 1 ? ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE : 0);
    out[i].maxMemoryFillPatternSize = i == 1 ? 128 : 1;
    out[i].numQueues = i == 1 ? 4 : 1;
  });
}
ze_result_t device_access_peer(ze_device_handle_t, ze_device_handle_t, ze_bool_t* can) {
  *can = 0;
  return ZE_RESULT_SUCCESS;
}
ze_result_t device_status(ze_device_handle_t d) {
  return d->queues->failed() ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

ze_result_t context_create(ze_driver_handle_t, const ze_context_desc_t*, ze_context_handle_t* made) {
  *made = global().add(new _ze_context_handle_t);
  return ZE_RESULT_SUCCESS;
}
ze_result_t context_destroy(ze_context_handle_t c) {
  if (!global().remove(c)) return global().misused("zeContextDestroy of a context that has gone");
  delete c;
  return ZE_RESULT_SUCCESS;
}
ze_result_t context_status(ze_context_handle_t) {
  for (const auto& gpu : global().gpus)
    if (gpu.queues->failed()) return ZE_RESULT_ERROR_DEVICE_LOST;
  return ZE_RESULT_SUCCESS;
}

// ---- memory ----

ze_result_t alloc_device(ze_context_handle_t, const ze_device_mem_alloc_desc_t*, std::size_t bytes,
                         std::size_t alignment, ze_device_handle_t d, void** made) {
  if (d->queues->failed()) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (alignment > 256) return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
  *made = d->queues->memory().allocate(bytes);
  return *made == nullptr ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY : ZE_RESULT_SUCCESS;
}
ze_result_t alloc_host(ze_context_handle_t, const ze_host_mem_alloc_desc_t*, std::size_t bytes, std::size_t,
                       void** made) {
  // All devices can access it.
  auto& gpus = global().gpus;
  *made = gpus[0].queues->memory().allocate_pinned(bytes);
  const std::size_t size = gpus[0].queues->memory().find(*made).bytes;
  for (std::size_t i = 1; i < gpus.size(); ++i) gpus[i].queues->memory().pin(*made, size);
  return ZE_RESULT_SUCCESS;
}
ze_result_t alloc_shared(ze_context_handle_t c, const ze_device_mem_alloc_desc_t*,
                         const ze_host_mem_alloc_desc_t* how, std::size_t bytes, std::size_t alignment,
                         ze_device_handle_t, void** made) {
  const ze_result_t code = alloc_host(c, how, bytes, alignment, made);
  const std::lock_guard lock(global().mutex);
  global().shared.insert(*made);
  return code;
}
ze_result_t free_memory(ze_context_handle_t, void* memory) {
  auto& gpus = global().gpus;
  for (const auto& gpu : gpus) {
    arena& of = gpu.queues->memory();
    if (!of.contains(memory)) continue;
    if (open_elsewhere(of, of.find(memory)))
      global().misused("zeMemFree of memory that another process has open");
    return of.release(memory, arena::kind::own) ? ZE_RESULT_SUCCESS
                                                : global().misused("zeMemFree of what is not allocated");
  }
  const arena::block b = gpus[0].queues->memory().find(memory);
  if (b.is != arena::kind::pinned || b.base != memory)
    return global().misused("zeMemFree of what is not allocated");
  for (std::size_t i = 1; i < gpus.size(); ++i) gpus[i].queues->memory().release(memory, arena::kind::pinned);
  gpus[0].queues->memory().release(memory, arena::kind::pinned);
  const std::lock_guard lock(global().mutex);
  global().shared.erase(memory);
  return ZE_RESULT_SUCCESS;
}
ze_result_t memory_properties(ze_context_handle_t, const void* memory, ze_memory_allocation_properties_t* p,
                              ze_device_handle_t* on) {
  p->type = ZE_MEMORY_TYPE_UNKNOWN;
  p->id = 0;
  p->pageSize = 4096;
  if (on != nullptr) *on = nullptr;
  for (auto& gpu : global().gpus)
    if (const arena::block b = gpu.queues->memory().find(memory); b.is == arena::kind::own) {
      p->type = ZE_MEMORY_TYPE_DEVICE;
      p->id = b.id;
      if (on != nullptr) *on = &gpu;
      return ZE_RESULT_SUCCESS;
    }
  if (const arena::block b = global().gpus[0].queues->memory().find(memory); b.is == arena::kind::pinned) {
    const std::lock_guard lock(global().mutex);
    p->type = global().shared.count(b.base) == 1 ? ZE_MEMORY_TYPE_SHARED : ZE_MEMORY_TYPE_HOST;
  }
  return ZE_RESULT_SUCCESS;
}
ze_result_t address_range(ze_context_handle_t, const void* memory, void** base, std::size_t* bytes) {
  for (const auto& gpu : global().gpus)
    if (const arena::block b = gpu.queues->memory().find(memory); b.is == arena::kind::own) {
      *base = b.base;
      *bytes = b.bytes;
      return ZE_RESULT_SUCCESS;
    }
  const arena::block b = global().gpus[0].queues->memory().find(memory);
  *base = b.base;
  *bytes = b.bytes;
  return b.is == arena::kind::pinned ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

}  // namespace tutti::fakes

// ---- controls for tests ----

using tutti::fakes::global;

TUTTI_EXPORT void tutti_level_zero_reset(std::uint64_t adversary, std::uint64_t delay_us, int in_order) {
  global().reset(adversary, delay_us, in_order != 0);
}
TUTTI_EXPORT void tutti_level_zero_fail_after(int device, std::uint64_t n) {
  global().gpus.at(static_cast<std::size_t>(device)).queues->fail_after(n, "as the test wanted");
}
TUTTI_EXPORT void tutti_level_zero_pause(int device, int on) {
  global().gpus.at(static_cast<std::size_t>(device)).queues->pause(on != 0);
}
TUTTI_EXPORT void tutti_level_zero_refuse_barriers(int on) { global().refuses_barriers = on != 0; }
TUTTI_EXPORT std::uint64_t tutti_level_zero_allocations(int device) {
  return global().gpus.at(static_cast<std::size_t>(device)).queues->memory().allocations();
}
TUTTI_EXPORT std::uint64_t tutti_level_zero_misuses(void) { return global().misuses; }
TUTTI_EXPORT const char* tutti_level_zero_last_misuse(void) { return global().misuse.c_str(); }
