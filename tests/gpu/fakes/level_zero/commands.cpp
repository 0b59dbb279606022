// SPDX-License-Identifier: Apache-2.0
// Command lists, events and kernels.
#include "level_zero/objects.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

namespace {
std::atomic<void*> spare_list{nullptr};
}
void* _ze_command_list_handle_t::operator new(std::size_t bytes) {
  void* const spare = spare_list.exchange(nullptr);
  return spare != nullptr ? spare : ::operator new(bytes);
}
void _ze_command_list_handle_t::operator delete(void* memory) noexcept {
  ::operator delete(spare_list.exchange(memory));
}

namespace tutti::fakes {

using emulated::device_queues;

namespace {

// Detects two threads that append to one list at a time.
class appending {
 public:
  explicit appending(ze_command_list_handle_t l) : list_(l), alone_(!l->appending.exchange(true)) {
    if (!alone_) global().misused("two threads append to one list at a time");
  }
  appending(const appending&) = delete;
  appending& operator=(const appending&) = delete;
  ~appending() {
    if (alone_) list_->appending.store(false);
  }

 private:
  ze_command_list_handle_t list_;
  bool alone_;
};

ze_result_t wrong(const char* call, ze_command_list_handle_t l, ze_event_handle_t signal, std::uint32_t n,
                  ze_event_handle_t* waits) {
  state& s = global();
  if (!s.knows(l)) return s.misused(std::string(call) + " to a list that has gone");
  if (signal != nullptr && !s.knows(signal))
    return s.misused(std::string(call) + " that signals an event that has gone");
  for (std::uint32_t i = 0; i < n; ++i)
    if (!s.knows(waits[i])) return s.misused(std::string(call) + " that waits for an event that has gone");
  return l->device->queues->failed() ? ZE_RESULT_ERROR_DEVICE_LOST : ZE_RESULT_SUCCESS;
}

// Appends one command. A list that keeps the order has a queue. In others each command has its own queue,
// behind the last barrier.
ze_result_t append(ze_command_list_handle_t l, std::function<void()> work, bool barrier,
                   ze_event_handle_t signal, std::uint32_t n, ze_event_handle_t* waits) {
  const appending alone(l);
  device_queues& e = *l->device->queues;
  device_queues::queue* const q = l->queue != nullptr ? l->queue : e.make_queue();
  l->pending.fetch_add(1);
  if (l->queue == nullptr) {
    e.wait(q, l->barrier);
    if (barrier && n == 0)
      for (const device_queues::event& before : l->since_barrier) e.wait(q, before);
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    ze_event_handle_t const w = waits[i];
    w->uses.fetch_add(1);
    e.wait(q, &w->signalled, 1);
    e.call(q, [w] { w->uses.fetch_sub(1); });
  }
  if (work) e.run(q, std::move(work));
  if (signal != nullptr) signal->uses.fetch_add(1);
  // Runs before the command is seen to be done.
  e.call(q, [l, signal] {
    l->pending.fetch_sub(1);
    if (signal != nullptr) signal->uses.fetch_sub(1);
  });
  if (l->queue == nullptr) {
    device_queues::event done;
    e.record(q, done);
    if (barrier && n == 0) l->since_barrier.clear();
    if (barrier) {
      // A barrier that waits for events covers no earlier command; the next barrier without events does.
      l->barrier = done;
      if (n > 0) l->since_barrier.push_back(done);
    } else {
      l->since_barrier.push_back(done);
    }
  }
  if (signal != nullptr) e.write(q, &signal->signalled, 1);
  if (l->queue == nullptr) e.destroy_queue(q);
  return ZE_RESULT_SUCCESS;
}

}  // namespace

ze_result_t list_create(ze_context_handle_t, ze_device_handle_t d, const ze_command_queue_desc_t* how,
                        ze_command_list_handle_t* made) {
  state& s = global();
  constexpr std::uint32_t in_order = 2;
  if (d->queues->failed()) return ZE_RESULT_ERROR_DEVICE_LOST;
  if (how->ordinal != 1 || how->index >= 4)
    return s.misused("a list on queues that cannot compute, or are not there");
  if (how->mode != ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS) return s.misused("a list that blocks the host");
  if ((how->flags & in_order) != 0 && !s.in_order) return ZE_RESULT_ERROR_INVALID_ENUMERATION;
  auto* const l = new _ze_command_list_handle_t;
  l->device = d;
  if ((how->flags & in_order) != 0) l->queue = d->queues->make_queue();
  *made = s.add(l);
  return ZE_RESULT_SUCCESS;
}
ze_result_t list_destroy(ze_command_list_handle_t l) {
  if (!global().remove(l)) return global().misused("zeCommandListDestroy of a list that has gone");
  const bool in_use = l->pending.load() > 0 && !l->device->queues->failed();
  if (l->queue != nullptr) l->device->queues->destroy_queue(l->queue);
  if (in_use || l->device->queues->failed()) {
    {
      const std::lock_guard lock(global().mutex);
      global().ended_lists.emplace_back(l);
    }
    return in_use ? global().misused("zeCommandListDestroy of a list that is not done") : ZE_RESULT_SUCCESS;
  }
  delete l;
  std::this_thread::yield();  // another thread may create its list before this call returns
  return ZE_RESULT_SUCCESS;
}

ze_result_t append_barrier(ze_command_list_handle_t l, ze_event_handle_t signal, std::uint32_t n,
                           ze_event_handle_t* waits) {
  if (const ze_result_t code = wrong("zeCommandListAppendBarrier", l, signal, n, waits);
      code != ZE_RESULT_SUCCESS)
    return code;
  if (global().refuses_barriers) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  return append(l, nullptr, true, signal, n, waits);
}
ze_result_t append_signal(ze_command_list_handle_t l, ze_event_handle_t signal) {
  if (const ze_result_t code = wrong("zeCommandListAppendSignalEvent", l, signal, 0, nullptr);
      code != ZE_RESULT_SUCCESS)
    return code;
  return append(l, nullptr, false, signal, 0, nullptr);
}
ze_result_t append_wait(ze_command_list_handle_t l, std::uint32_t n, ze_event_handle_t* waits) {
  if (const ze_result_t code = wrong("zeCommandListAppendWaitOnEvents", l, nullptr, n, waits);
      code != ZE_RESULT_SUCCESS)
    return code;
  return append(l, nullptr, true, nullptr, n, waits);
}
ze_result_t append_copy(ze_command_list_handle_t l, void* to, const void* from, std::size_t bytes,
                        ze_event_handle_t signal, std::uint32_t n, ze_event_handle_t* waits) {
  if (const ze_result_t code = wrong("zeCommandListAppendMemoryCopy", l, signal, n, waits);
      code != ZE_RESULT_SUCCESS)
    return code;
  const auto work = [e = l->device->queues.get(), to, from, bytes] {
    std::memmove(e->reach(to, bytes), e->reach(from, bytes), bytes);
  };
  return append(l, work, false, signal, n, waits);
}
ze_result_t append_fill(ze_command_list_handle_t l, void* to, const void* pattern, std::size_t pattern_bytes,
                        std::size_t bytes, ze_event_handle_t signal, std::uint32_t n,
                        ze_event_handle_t* waits) {
  if (const ze_result_t code = wrong("zeCommandListAppendMemoryFill", l, signal, n, waits);
      code != ZE_RESULT_SUCCESS)
    return code;
  if (pattern_bytes != 1) return ZE_RESULT_ERROR_INVALID_SIZE;
  const int value = *static_cast<const unsigned char*>(pattern);
  const auto work = [e = l->device->queues.get(), to, value, bytes] {
    std::memset(e->reach(to, bytes), value, bytes);
  };
  return append(l, work, false, signal, n, waits);
}

// ---- events ----

ze_result_t pool_create(ze_context_handle_t, const ze_event_pool_desc_t* how, std::uint32_t,
                        ze_device_handle_t*, ze_event_pool_handle_t* made) {
  if ((how->flags & ZE_EVENT_POOL_FLAG_HOST_VISIBLE) == 0)
    return global().misused("events that the host cannot see");
  auto* const pool = new _ze_event_pool_handle_t;
  pool->taken.resize(how->count);
  *made = global().add(pool);
  return ZE_RESULT_SUCCESS;
}
ze_result_t pool_destroy(ze_event_pool_handle_t pool) {
  if (!global().remove(pool)) return global().misused("zeEventPoolDestroy of a pool that has gone");
  if (pool->live > 0) return global().misused("zeEventPoolDestroy of a pool with events");
  delete pool;
  return ZE_RESULT_SUCCESS;
}
ze_result_t event_create(ze_event_pool_handle_t pool, const ze_event_desc_t* how, ze_event_handle_t* made) {
  if (how->index >= pool->taken.size() || pool->taken[how->index])
    return global().misused("zeEventCreate at a place that is taken");
  pool->taken[how->index] = true;
  ++pool->live;
  auto* const e = new _ze_event_handle_t;
  e->pool = pool;
  e->index = how->index;
  *made = global().add(e);
  return ZE_RESULT_SUCCESS;
}
static bool any_failed() {
  for (const auto& gpu : global().gpus)
    if (gpu.queues->failed()) return true;
  return false;
}
ze_result_t event_destroy(ze_event_handle_t e) {
  if (!global().remove(e)) return global().misused("zeEventDestroy of an event that has gone");
  e->pool->taken[e->index] = false;
  --e->pool->live;
  if (e->uses.load() > 0) {
    {
      const std::lock_guard lock(global().mutex);
      global().ended_events.emplace_back(e);
    }
    return any_failed() ? ZE_RESULT_SUCCESS : global().misused("zeEventDestroy of an event that is in use");
  }
  delete e;
  return ZE_RESULT_SUCCESS;
}
ze_result_t event_signal(ze_event_handle_t e) {
  if (!global().knows(e)) return global().misused("zeEventHostSignal of an event that has gone");
  e->signalled.store(1, std::memory_order_release);
  for (const auto& gpu : global().gpus) gpu.queues->changed();
  return ZE_RESULT_SUCCESS;
}
ze_result_t event_reset(ze_event_handle_t e) {
  if (!global().knows(e)) return global().misused("zeEventHostReset of an event that has gone");
  if (e->uses.load() > 0 && !any_failed())
    return global().misused("zeEventHostReset of an event that is in use");
  e->signalled.store(0, std::memory_order_release);
  return ZE_RESULT_SUCCESS;
}
// As in real drivers, a query reads the event only, and reports no failure.
ze_result_t event_query(ze_event_handle_t e) {
  if (!global().knows(e)) return global().misused("zeEventQueryStatus of an event that has gone");
  return e->signalled.load(std::memory_order_acquire) != 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}
ze_result_t event_synchronize(ze_event_handle_t e, std::uint64_t timeout_ns) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  for (;;) {
    if (const ze_result_t code = event_query(e); code != ZE_RESULT_NOT_READY) return code;
    if (any_failed()) return ZE_RESULT_ERROR_DEVICE_LOST;
    if (std::chrono::steady_clock::now() >= until) return ZE_RESULT_NOT_READY;
    std::this_thread::yield();
  }
}

// ---- kernels ----

ze_result_t module_create(ze_context_handle_t, ze_device_handle_t, const ze_module_desc_t* how,
                          ze_module_handle_t* made, ze_module_build_log_handle_t* log) {
  std::string why;
  void* library = nullptr;
  if (how->format != ZE_MODULE_FORMAT_NATIVE) {
    why = "this driver takes native modules, which are shared objects, and no SPIR-V";
  } else {
    const int fd = ::memfd_create("tutti-native-module", MFD_CLOEXEC);
    const bool written =
        fd >= 0 && ::write(fd, how->pInputModule, how->inputSize) == static_cast<ssize_t>(how->inputSize);
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (written) library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const said = written ? ::dlerror() : nullptr;
      why = said == nullptr ? "no memory for the module" : said;
    }
    if (fd >= 0) ::close(fd);
  }
  if (log != nullptr) *log = global().add(new _ze_module_build_log_handle_t{why});
  if (library == nullptr) return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
  auto* const m = new _ze_module_handle_t;
  m->library = library;
  *made = global().add(m);
  return ZE_RESULT_SUCCESS;
}
ze_result_t module_destroy(ze_module_handle_t m) {
  if (!global().remove(m)) return global().misused("zeModuleDestroy of a module that has gone");
  if (m->kernels.load() > 0) return global().misused("zeModuleDestroy of a module with kernels");
  ::dlclose(m->library);
  delete m;
  return ZE_RESULT_SUCCESS;
}
ze_result_t build_log_text(ze_module_build_log_handle_t log, std::size_t* bytes, char* text) {
  const std::size_t needed = log->text.size() + 1;
  if (text != nullptr && *bytes >= needed) std::memcpy(text, log->text.c_str(), needed);
  *bytes = needed;
  return ZE_RESULT_SUCCESS;
}
ze_result_t build_log_destroy(ze_module_build_log_handle_t log) {
  if (!global().remove(log)) return global().misused("zeModuleBuildLogDestroy of a log that has gone");
  delete log;
  return ZE_RESULT_SUCCESS;
}
ze_result_t kernel_create(ze_module_handle_t m, const ze_kernel_desc_t* how, ze_kernel_handle_t* made) {
  void* const found = ::dlsym(m->library, how->pKernelName);
  if (found == nullptr) return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
  auto* const k = new _ze_kernel_handle_t;
  k->of = m;
  k->function = reinterpret_cast<native_kernel*>(found);
  ++m->kernels;
  *made = global().add(k);
  return ZE_RESULT_SUCCESS;
}
ze_result_t kernel_destroy(ze_kernel_handle_t k) {
  if (!global().remove(k)) return global().misused("zeKernelDestroy of a kernel that has gone");
  --k->of->kernels;
  delete k;
  return ZE_RESULT_SUCCESS;
}
ze_result_t kernel_group_size(ze_kernel_handle_t k, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  k->group_size = x * y * z;
  return ZE_RESULT_SUCCESS;
}
ze_result_t kernel_argument(ze_kernel_handle_t k, std::uint32_t index, std::size_t bytes, const void* value) {
  if (k->arguments.size() <= index) k->arguments.resize(index + 1);
  k->arguments[index].resize(bytes);
  std::memcpy(k->arguments[index].data(), value, bytes);
  return ZE_RESULT_SUCCESS;
}
ze_result_t kernel_indirect_access(ze_kernel_handle_t, ze_kernel_indirect_access_flags_t) {
  return ZE_RESULT_SUCCESS;
}

ze_result_t append_launch(ze_command_list_handle_t l, ze_kernel_handle_t k, const ze_group_count_t* groups,
                          ze_event_handle_t signal, std::uint32_t n, ze_event_handle_t* waits) {
  if (const ze_result_t code = wrong("zeCommandListAppendLaunchKernel", l, signal, n, waits);
      code != ZE_RESULT_SUCCESS)
    return code;
  const std::uint64_t items =
      std::uint64_t{groups->groupCountX} * groups->groupCountY * groups->groupCountZ * k->group_size;
  const auto work = [e = l->device->queues.get(), f = k->function, items, arguments = k->arguments] {
    std::vector<const void*> values;
    for (const auto& a : arguments) values.push_back(a.data());
    kernel_launch how;
    how.items = items;
    how.arguments = values.data();
    how.argument_count = values.size();
    how.reach = [](const void* device, const void* memory, std::size_t bytes) -> void* {
      return static_cast<const device_queues*>(device)->reach(memory, bytes);
    };
    how.device = e;
    f(how);
  };
  return append(l, work, false, signal, n, waits);
}

}  // namespace tutti::fakes
