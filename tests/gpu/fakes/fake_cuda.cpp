// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda on the queues of emulated devices: CUDA's symbols, order, visibility and sticky
// errors, without a GPU. It is stricter than CUDA to find mistakes: pageable memory is an illegal address,
// freeing waits for the device, and must not while a stream waits for a word: CUDA locks its driver meanwhile.
//
// TUTTI_FAKE_CUDA_STRICT=1 ends the process at a call that CUDA forbids. TUTTI_FAKE_CUDA_KERNELS=FILE adds
// kernels of the program (fake_cuda_kernels.cpp).
#include "fake_cuda.hpp"
#include "fake_cuda_library.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

using namespace tutti::cuda::fake;

namespace {

std::atomic<int> events_left{-1};  // that may still be made; negative: no limit
void (*at_retain)(void*) = nullptr;
void* at_retain_data = nullptr;

// An item that fails is never done.
thread_local int capture_mode = 0;  // global
// What asks whether work is done ends captures of the context, unless the thread is in the relaxed mode.
result wrong_in_capture(const char* call, const context& c) {
  if (capture_mode == capture_mode_relaxed ||
      c.queues->all_queues([](const auto& q) { return !q.capturing.load(); }))
    return success;
  return lib().misused(std::string(call) + " while a stream is being captured", capture_unsupported);
}

bool is_idle(const device_queues::queue& q) { return q.done == q.enqueued; }
bool idle(const stream& s) {
  return s.of->queues->all_queues([&s](const auto& q) { return &q != s.queue || is_idle(q); });
}

// Waits until `idle_now`; returns false if that takes too long or the device has failed.
template <class Idle>
bool wait_until(const device_queues& e, Idle idle_now, std::chrono::seconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (!idle_now()) {
    if (e.failed() || std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}
// As freeing memory does on a GPU.
void wait_for_all(const device_queues& e) {
  wait_until(e, [&e] { return e.all_queues(is_idle); }, std::chrono::seconds(5));
}

}  // namespace

// ---- controls for tests ----

TUTTI_EXPORT void tutti_fake_cuda_reset(int devices, std::uint64_t adversary, std::uint64_t delay_us,
                                        int words) {
  events_left.store(-1);
  lib().reset(devices, adversary, delay_us, words != 0);
}
TUTTI_EXPORT void tutti_fake_cuda_fail_after(int device, std::uint64_t n, const char* why) {
  lib().devices.at(static_cast<std::size_t>(device))->queues->fail_after(n, why);
}
TUTTI_EXPORT void tutti_fake_cuda_refuse_events_after(int n) { events_left.store(n); }
TUTTI_EXPORT void tutti_fake_cuda_pause(int device, int on) {
  lib().devices.at(static_cast<std::size_t>(device))->queues->pause(on != 0);
}
TUTTI_EXPORT void tutti_fake_cuda_at_retain(void (*f)(void*), void* data) {
  at_retain = f;
  at_retain_data = data;
}
TUTTI_EXPORT void tutti_fake_cuda_set_capturing(void* s, int on) {
  static_cast<stream*>(s)->queue->capturing.store(on != 0);
}
TUTTI_EXPORT std::uint64_t tutti_fake_cuda_allocations(int device) {
  return lib().devices.at(static_cast<std::size_t>(device))->queues->memory().allocations();
}
TUTTI_EXPORT std::uint64_t tutti_fake_cuda_misuses(void) { return lib().misuses; }
TUTTI_EXPORT const char* tutti_fake_cuda_last_misuse(void) { return lib().misuse.c_str(); }

TUTTI_EXPORT void tutti_fake_cuda_run(void* s, void (*f)(void*), void* data) {
  auto* const on = static_cast<stream*>(s);
  on->of->queues->run(on->queue, [f, data] { f(data); });
}
TUTTI_EXPORT void tutti_fake_cuda_wait(void* s, const std::uint64_t* word) {
  auto* const on = static_cast<stream*>(s);
  on->of->queues->wait(on->queue, reinterpret_cast<const device_queues::word*>(word), 1);
}
TUTTI_EXPORT void tutti_fake_cuda_changed(int device) {
  lib().devices.at(static_cast<std::size_t>(device))->queues->changed();
}
TUTTI_EXPORT void* tutti_fake_cuda_reach(int device, const void* memory, std::uint64_t bytes) {
  try {
    return lib().devices.at(static_cast<std::size_t>(device))->queues->reach(memory, bytes);
  } catch (const device_queues::fault&) {
    return nullptr;
  }
}
TUTTI_EXPORT int tutti_fake_cuda_device(void* s) { return static_cast<stream*>(s)->of->ordinal; }
TUTTI_EXPORT int tutti_fake_cuda_current_device(void) {
  return current.empty() ? -1 : current.back()->ordinal;
}
TUTTI_EXPORT void tutti_fake_cuda_note_free(const char* call) {
  if (current.empty()) return;
  if (a_stream_waits()) lib().misused(std::string(call) + " while a stream waits for a word", success);
  wait_for_all(*current.back()->queues);
}

// ---- CUDA's calls ----

TUTTI_EXPORT result cuInit(unsigned) { return lib().devices.empty() ? error_no_device : success; }
TUTTI_EXPORT result cuDriverGetVersion(int* version) {
  *version = 13000;
  return success;
}
TUTTI_EXPORT result cuDeviceGetCount(int* count) {
  *count = static_cast<int>(lib().devices.size());
  return success;
}
TUTTI_EXPORT result cuDeviceGet(device* d, int ordinal) {
  *d = ordinal;
  return ordinal < static_cast<int>(lib().devices.size()) ? success : 101;
}
TUTTI_EXPORT result cuDeviceGetName(char* name, int length, device) {
  std::strncpy(name, "stand-in", static_cast<std::size_t>(length));
  return success;
}
TUTTI_EXPORT result cuDeviceGetUuid_v2(uuid* id, device d) {
  std::memset(id, 0, sizeof *id);
  id->bytes[0] = static_cast<char>(d + 1);
  return success;
}
TUTTI_EXPORT result cuDeviceGetAttribute(int* value, int attribute, device d) {
  *value = 1;
  if (attribute == attribute_can_use_64_bit_stream_mem_ops)
    *value = lib().devices.at(static_cast<std::size_t>(d))->words ? 1 : 0;
  return success;
}
TUTTI_EXPORT result cuDevicePrimaryCtxRetain(context** c, device d) {
  if (at_retain != nullptr) at_retain(at_retain_data);
  *c = lib().devices.at(static_cast<std::size_t>(d)).get();
  return success;
}
TUTTI_EXPORT result cuDevicePrimaryCtxRelease_v2(device) { return success; }
TUTTI_EXPORT result cuCtxPushCurrent_v2(context* c) {
  current.push_back(c);
  return success;
}
TUTTI_EXPORT result cuCtxPopCurrent_v2(context** c) {
  if (current.empty()) return invalid_context;
  *c = current.back();
  current.pop_back();
  return success;
}
// Replaces the top of the thread's stack of contexts; null removes it.
TUTTI_EXPORT result cuCtxSetCurrent(context* c) {
  if (in_host_function) return lib().misused("cuCtxSetCurrent inside a host function", error_not_permitted);
  if (!current.empty()) current.pop_back();
  if (c != nullptr) current.push_back(c);
  return success;
}
TUTTI_EXPORT result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return success;
}
TUTTI_EXPORT result cuGetErrorName(result code, const char** name) {
  *name = code == failed_launch         ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == error_out_of_memory ? "CUDA_ERROR_OUT_OF_MEMORY"
                                        : "CUDA_ERROR";
  return success;
}
TUTTI_EXPORT result cuGetErrorString(result code, const char** text) {
  *text = code == failed_launch ? last_failure.c_str() : "as the stand-in says";
  return success;
}
TUTTI_EXPORT result cuMemAlloc_v2(device_pointer* p, std::size_t bytes) {
  TUTTI_CHECK(wrong("cuMemAlloc"));
  void* const memory = current.back()->queues->memory().allocate(bytes);
  *p = reinterpret_cast<device_pointer>(memory);
  return memory == nullptr ? error_out_of_memory : success;
}
TUTTI_EXPORT result cuMemFree_v2(device_pointer p) {
  if (in_host_function || current.empty())
    return lib().misused("cuMemFree inside a host function or without a context", invalid_context);
  device_queues& e = *current.back()->queues;
  if (a_stream_waits()) lib().misused("cuMemFree while a stream waits for a word", success);
  if (users_of(*current.back(), e.memory().find(pointer(p)).id) > 0)
    lib().misused("cuMemFree of memory that another process has open", success);
  wait_for_all(e);
  return e.memory().release(pointer(p), tutti::emulated::arena::kind::own)
             ? success
             : lib().misused("cuMemFree of what is not allocated", error_invalid_value);
}
TUTTI_EXPORT result cuMemHostAlloc(void** p, std::size_t bytes, unsigned) {
  TUTTI_CHECK(wrong("cuMemHostAlloc"));
  *p = current.back()->queues->memory().allocate_pinned(bytes);
  return success;
}
TUTTI_EXPORT result cuMemFreeHost(void* p) {
  if (current.empty()) return lib().misused("cuMemFreeHost without a context", invalid_context);
  if (a_stream_waits()) lib().misused("cuMemFreeHost while a stream waits for a word", success);
  wait_for_all(*current.back()->queues);
  current.back()->queues->memory().release(p, tutti::emulated::arena::kind::pinned);
  return success;
}
TUTTI_EXPORT result cuMemHostRegister_v2(void* p, std::size_t bytes, unsigned) {
  TUTTI_CHECK(wrong("cuMemHostRegister"));
  return current.back()->queues->memory().pin(p, bytes) ? success : error_already_registered;
}
TUTTI_EXPORT result cuMemHostUnregister(void* p) {
  if (current.empty()) return invalid_context;
  current.back()->queues->memory().release(p, tutti::emulated::arena::kind::pinned);
  return success;
}
TUTTI_EXPORT result cuPointerGetAttributes(unsigned n, int* wanted, void** values, device_pointer p) {
  if (current.empty()) return invalid_context;
  using tutti::emulated::arena;
  const arena::block block = current.back()->queues->memory().find(pointer(p));
  for (unsigned i = 0; i < n; ++i) {
    switch (wanted[i]) {
      case pointer_memory_type:
        *static_cast<unsigned*>(values[i]) = block.is == arena::kind::none     ? 0
                                             : block.is == arena::kind::pinned ? memory_type_host
                                                                               : memory_type_device;
        break;
      case pointer_is_managed:
        *static_cast<unsigned*>(values[i]) = 0;
        break;
      case pointer_device_ordinal:
        *static_cast<int*>(values[i]) = current.back()->ordinal;
        break;
      case pointer_range_start:
        *static_cast<const void**>(values[i]) = block.base;
        break;
      case pointer_range_size:
        *static_cast<std::size_t*>(values[i]) = block.bytes;
        break;
      default:
        return error_invalid_value;
    }
  }
  return success;
}
TUTTI_EXPORT result cuMemcpyAsync(device_pointer to, device_pointer from, std::size_t bytes, stream* s) {
  TUTTI_CHECK(wrong_handle("cuMemcpyAsync", s));
  s->of->queues->run(s->queue, [e = s->of->queues.get(), to, from, bytes] {
    std::memmove(e->reach(pointer(to), bytes), e->reach(pointer(from), bytes), bytes);
  });
  return success;
}
TUTTI_EXPORT result cuMemsetD8Async(device_pointer to, unsigned char value, std::size_t bytes, stream* s) {
  TUTTI_CHECK(wrong_handle("cuMemsetD8Async", s));
  s->of->queues->run(s->queue, [e = s->of->queues.get(), to, value, bytes] {
    std::memset(e->reach(pointer(to), bytes), value, bytes);
  });
  return success;
}
TUTTI_EXPORT result cuStreamCreateWithPriority(stream** s, unsigned, int) {
  TUTTI_CHECK(wrong("cuStreamCreateWithPriority"));
  *s = lib().add(new stream{current.back(), current.back()->queues->make_queue()});
  return success;
}
TUTTI_EXPORT result cuStreamDestroy_v2(stream* s) {
  if (!lib().remove(s))
    return lib().misused("cuStreamDestroy of a stream that has gone", error_invalid_handle);
  s->of->queues->destroy_queue(s->queue);
  delete s;
  return success;
}
TUTTI_EXPORT result cuStreamQuery(stream* s) {
  TUTTI_CHECK(wrong_handle("cuStreamQuery", s));
  if (s->queue->capturing.load())
    return lib().misused("cuStreamQuery of a stream that is being captured", capture_unsupported);
  TUTTI_CHECK(wrong_in_capture("cuStreamQuery", *s->of));
  return idle(*s) ? success : error_not_ready;
}
TUTTI_EXPORT result cuStreamSynchronize(stream* s) {
  TUTTI_CHECK(wrong_handle("cuStreamSynchronize", s));
  if (s->queue->capturing.load())
    return lib().misused("cuStreamSynchronize of a stream that is being captured", capture_unsupported);
  if (wait_until(*s->of->queues, [s] { return idle(*s); }, std::chrono::seconds(60))) return success;
  TUTTI_CHECK(wrong("cuStreamSynchronize"));
  return lib().misused("cuStreamSynchronize of a stream that stands still", error_unknown);
}
TUTTI_EXPORT result cuStreamWaitEvent(stream* s, event* e, unsigned) {
  TUTTI_CHECK(wrong_handle("cuStreamWaitEvent", s));
  TUTTI_CHECK(wrong_handle("cuStreamWaitEvent", e));
  if (e->shared == nullptr) {
    s->of->queues->wait(s->queue, e->point);
  } else if (const std::uint64_t latest = e->shared->recorded.load(std::memory_order_acquire); latest > 0) {
    s->of->queues->wait(s->queue, &e->shared->passed, latest);
  }
  return success;
}
TUTTI_EXPORT result cuStreamIsCapturing(stream* s, int* status) {
  if (!lib().knows(s))
    return lib().misused("cuStreamIsCapturing of a stream that has gone", error_invalid_handle);
  *status = s->queue->capturing.load() ? 1 : capture_none;
  return success;
}
TUTTI_EXPORT result cuStreamWriteValue64_v2(stream* s, device_pointer p, std::uint64_t value, unsigned) {
  TUTTI_CHECK(wrong_handle("cuStreamWriteValue64", s));
  if (!s->of->words) return error_not_supported;
  s->of->queues->write(s->queue, static_cast<device_queues::word*>(pointer(p)), value);
  return success;
}
TUTTI_EXPORT result cuStreamWaitValue64_v2(stream* s, device_pointer p, std::uint64_t value, unsigned) {
  TUTTI_CHECK(wrong_handle("cuStreamWaitValue64", s));
  if (!s->of->words) return error_not_supported;
  if (s->queue->capturing.load())
    return lib().misused("cuStreamWaitValue64 in a graph, which may be launched when the word has gone",
                         error_invalid_value);
  s->of->queues->wait(s->queue, static_cast<const device_queues::word*>(pointer(p)), value);
  return success;
}
TUTTI_EXPORT result cuEventCreate(event** e, unsigned flags) {
  TUTTI_CHECK(wrong("cuEventCreate"));
  if (events_left.load() == 0) return error_out_of_memory;
  if (events_left.load() > 0) --events_left;
  const bool shared = (flags & event_interprocess) != 0;
  if (shared && (flags & event_disable_timing) == 0)
    return lib().misused("cuEventCreate of an event of several processes that takes times",
                         error_invalid_value);
  shared_moment* const moment = shared ? new_moment() : nullptr;
  if (shared && moment == nullptr) return error_out_of_memory;
  *e = lib().add(new event{current.back(), {}, moment});
  return success;
}
TUTTI_EXPORT result cuEventDestroy_v2(event* e) {
  if (!lib().remove(e))
    return lib().misused("cuEventDestroy of an event that has gone", error_invalid_handle);
  delete e;
  return success;
}
TUTTI_EXPORT result cuEventRecord(event* e, stream* s) {
  TUTTI_CHECK(wrong_handle("cuEventRecord", e));
  TUTTI_CHECK(wrong_handle("cuEventRecord", s));
  if (e->of != s->of)
    return lib().misused("cuEventRecord of an event of another context than the stream's",
                         error_invalid_handle);
  if (e->shared == nullptr) {
    s->of->queues->record(s->queue, e->point);
    return success;
  }
  const std::uint64_t number = e->shared->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
  s->of->queues->call(s->queue, [m = e->shared, number] {
    std::uint64_t before = m->passed.load(std::memory_order_relaxed);
    while (before < number && !m->passed.compare_exchange_weak(before, number, std::memory_order_acq_rel)) {
    }
  });
  return success;
}
TUTTI_EXPORT result cuEventQuery(event* e) {
  if (lib().knows(e)) {
    TUTTI_CHECK(wrong_in_capture("cuEventQuery", *e->of));
    const bool passed = e->shared == nullptr ? e->of->queues->passed(e->point)
                                             : e->shared->passed.load(std::memory_order_acquire) >=
                                                   e->shared->recorded.load(std::memory_order_acquire);
    if (passed) return success;
  }
  TUTTI_CHECK(wrong_handle("cuEventQuery", e));
  return error_not_ready;
}
TUTTI_EXPORT result cuLaunchHostFunc(stream* s, host_function f, void* data) {
  TUTTI_CHECK(wrong_handle("cuLaunchHostFunc", s));
  s->of->queues->call(s->queue, [f, data] {
    in_host_function = true;
    f(data);
    in_host_function = false;
  });
  return success;
}
TUTTI_EXPORT result cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return success;
}
