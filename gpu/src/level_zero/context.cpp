// SPDX-License-Identifier: Apache-2.0
#include "level_zero/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <new>
#include <tutti/error.hpp>
#include <utility>

namespace tutti::level_zero {
namespace {

using gpu::memory_info;
using gpu::memory_kind;
using clock = std::chrono::steady_clock;

constexpr std::uint32_t events_per_pool = 64;
constexpr std::size_t most_waits_without_a_moment = 64;
constexpr std::size_t alignment = 256;
constexpr std::size_t gates_per_page = 64;
constexpr std::size_t bytes_per_gate = 64;
// The watcher polls with pauses, because drivers wait for events by spinning.
constexpr auto shortest_pause = std::chrono::microseconds(20);
constexpr auto longest_pause = std::chrono::microseconds(500);
constexpr auto between_health_checks = std::chrono::milliseconds(100);
constexpr auto longest_farewell = std::chrono::seconds(10);

bool lost(abi::result code) noexcept {
  return code == abi::device_lost || code == abi::device_requires_reset;
}

}  // namespace

// ---- event_store ----

event_store::~event_store() {
  const std::lock_guard handles(calls_.handles);
  for (abi::event* e : all_) calls_.event_destroy(e);
  for (abi::event_pool* p : pools_) calls_.pool_destroy(p);
}

event_store::moment::~moment() {
  if (event == nullptr) return;
  const std::lock_guard lock(home->mutex_);
  home->spare_.push_back(event);
}

bool event_store::is_low() const noexcept {
  const std::lock_guard lock(mutex_);
  return spare_.empty();
}

std::shared_ptr<moment> event_store::take() {
  const auto check = [this](abi::result code, const char* what) {
    if (code != abi::success)
      throw error(lost(code) ? errc::device_failed : errc::resources,
                  fmt::format("{}: {}", what, calls_.explain(code)));
  };
  auto made = std::make_shared<moment>();
  made->home = shared_from_this();
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) {
    const std::lock_guard handles(calls_.handles);
    abi::event_pool_desc of;
    of.count = events_per_pool;
    abi::event_pool* pool = nullptr;
    check(calls_.pool_create(context_, &of, 1, &device_, &pool), "zeEventPoolCreate");
    pools_.push_back(pool);
    for (std::uint32_t i = 0; i < events_per_pool; ++i) {
      abi::event_desc at;
      at.index = i;
      abi::event* e = nullptr;
      check(calls_.event_create(pool, &at, &e), "zeEventCreate");
      all_.push_back(e);
      spare_.push_back(e);
    }
  }
  abi::event* const e = spare_.back();
  check(calls_.event_reset(e), "zeEventHostReset");
  spare_.pop_back();
  made->event = e;
  return made;
}

// ---- shared_context ----

shared_context::shared_context(const abi::table& c, int n) : calls(c), ordinal(n) {
  const abi::table::gpu& here = calls.gpus.at(static_cast<std::size_t>(n));
  driver = here.of;
  device = here.handle;
  abi::device_properties about;
  check(calls.device_properties_of(device, &about), "zeDeviceGetProperties");
  name = about.name;
  identity = "level-zero-";
  for (const std::uint8_t b : about.uuid) identity += fmt::format("{:02x}", b);
  // Drivers derive the UUID from the slot, so equal hosts have equal ones. The boot id tells hosts apart.
  std::string host;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), host);
  identity += "-" + host;
  abi::ipc_properties ipc;
  shares_memory = calls.driver_ipc(driver, &ipc) == abi::success && (ipc.flags & abi::ipc_of_memory) != 0;

  std::uint32_t groups = 0;
  check(calls.device_queue_groups(device, &groups, nullptr), "zeDeviceGetCommandQueueGroupProperties");
  std::vector<abi::queue_group_properties> kinds(groups);
  check(calls.device_queue_groups(device, &groups, kinds.data()), "zeDeviceGetCommandQueueGroupProperties");
  const auto computes = std::find_if(kinds.begin(), kinds.end(),
                                     [](const auto& k) { return (k.flags & abi::group_compute) != 0; });
  if (computes == kinds.end())
    throw error(errc::not_supported,
                fmt::format("level_zero device {} ({}) has no queues for kernels and copies", n, name));
  group_ = static_cast<std::uint32_t>(computes - kinds.begin());
  group_queues_ = std::max(1U, computes->queues);

  std::uint32_t version = 0;
  in_order_ = calls.driver_api_version(driver, &version) == abi::success && version >= abi::version_1_7;
  const abi::context_desc how;
  {
    const std::lock_guard handles(calls.handles);
    check(calls.context_create(driver, &how, &context), "zeContextCreate");
  }
  events_ = std::make_shared<event_store>(calls, context, device);
  one_ = new (allocate(sizeof(std::uint64_t), memory_kind::pinned)) std::uint64_t(1);
  watcher_ = std::thread([this] { watch_loop(); });
}

shared_context::~shared_context() {
  {
    const std::lock_guard lock(watch_mutex_);
    stopping_ = true;
  }
  watch_changed_.notify_all();
  watcher_.join();
  const auto until = clock::now() + longest_farewell;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      sweep();
      if (ending_.empty()) break;
    }
    if (lost(calls.device_status(device))) {
      // A lost device accesses nothing.
      {
        const std::lock_guard handles(calls.handles);
        for (const auto& [list, s] : ending_) calls.list_destroy(list);
      }
      ending_.clear();
      break;
    }
    if (clock::now() > until) {
      // Keeps what the device may still use, and the context around it.
      struct left {
        std::vector<std::pair<abi::list*, stream>> lists;
        std::shared_ptr<event_store> events;
      };
      static std::mutex mutex;
      static auto& all = *new std::vector<left>;
      const std::lock_guard lock(mutex);
      all.push_back({std::move(ending_), std::move(events_)});
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  streams_.clear();
  for (void* page : gate_pages_) free(page);
  free(one_);
  events_.reset();
  const std::lock_guard handles(calls.handles);
  calls.context_destroy(context);
}

void shared_context::check(abi::result code, const char* what) const {
  if (code == abi::success) return;
  errc as = errc::system;
  if (lost(code)) as = errc::device_failed;
  if (code == abi::out_of_host_memory || code == abi::out_of_device_memory) as = errc::resources;
  if (code == abi::unsupported_feature || code == abi::unsupported_version ||
      code == abi::unsupported_enumeration)
    as = errc::not_supported;
  if (code == abi::invalid_argument || (code >= abi::invalid_null_handle && code <= abi::unsupported_size) ||
      code == abi::invalid_enumeration || code == abi::invalid_native_binary ||
      code == abi::invalid_kernel_name)
    as = errc::invalid_argument;
  throw error(as, fmt::format("level_zero device {}: {}: {}", ordinal, what, calls.explain(code, driver)));
}

// ---- streams ----

abi::list* shared_context::make_list(bool urgent) {
  const std::lock_guard lock(mutex_);
  sweep();
  abi::queue_desc how;
  how.ordinal = group_;
  how.index = next_queue_++ % group_queues_;
  how.priority = urgent ? abi::priority_high : abi::priority_normal;
  how.flags = in_order_ ? abi::queue_in_order : 0;
  abi::list* made = nullptr;
  const std::lock_guard handles(calls.handles);
  abi::result code = calls.list_create(context, device, &how, &made);
  if (in_order_ && code != abi::success && !lost(code)) {
    // An old validation layer in front of the driver may not know the flag.
    in_order_ = false;
    how.flags = 0;
    code = calls.list_create(context, device, &how, &made);
  }
  check(code, "zeCommandListCreateImmediate");
  stream s;
  s.in_order = in_order_;
  streams_.insert_or_assign(made, std::move(s));
  return made;
}

void shared_context::destroy_list(abi::list* l) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(l);
  if (found == streams_.end()) return;
  ending_.emplace_back(l, std::move(found->second));
  streams_.erase(found);
  sweep();
}

// Requires mutex_, as do append_moment, append, append_wait, take_moment and sweep.
void shared_context::before_command(abi::list* in) {
  if (!streams_[in].in_order) check(calls.barrier(in, nullptr, 0, nullptr), "zeCommandListAppendBarrier");
}

std::shared_ptr<moment> shared_context::append_moment(abi::list* in) {
  std::shared_ptr<moment> m = take_moment();
  append(m, in, streams_[in]);
  return m;
}

void shared_context::append(const std::shared_ptr<moment>& m, abi::list* in, stream& s) {
  check(calls.barrier(in, m->event, 0, nullptr), "zeCommandListAppendBarrier");
  m->before = std::exchange(s.waited_for, {});
  s.pending.push_back(m);
}

void shared_context::append_wait(const std::shared_ptr<moment>& m, abi::list* in) {
  abi::event* event = m->event;
  check(calls.barrier(in, nullptr, 1, &event), "zeCommandListAppendBarrier");
  stream& s = streams_[in];
  s.waited_for.push_back(m);
  if (s.waited_for.size() >= most_waits_without_a_moment) append_moment(in);
}

std::shared_ptr<moment> shared_context::take_moment() {
  if (events_->is_low()) sweep();
  return events_->take();
}

void shared_context::forget_passed(const abi::table& calls, stream& s) noexcept {
  while (!s.pending.empty() && calls.event_query(s.pending.front()->event) == abi::success) {
    s.pending.front()->before.clear();
    s.pending.pop_front();
  }
}

void shared_context::sweep() noexcept {
  for (auto& [list, s] : streams_) forget_passed(calls, s);
  std::erase_if(ending_, [this](auto& e) {
    auto& [list, s] = e;
    try {
      if (!s.has_last_moment) append(events_->take(), list, s);
      s.has_last_moment = true;
    } catch (const std::exception&) {
      // The next sweep tries again. A lost device takes no event; ~shared_context then destroys the list.
      return false;
    }
    forget_passed(calls, s);
    if (!s.pending.empty()) return false;
    const std::lock_guard handles(calls.handles);
    calls.list_destroy(list);
    return true;
  });
}

void shared_context::copy(void* to, const void* from, std::size_t bytes, abi::list* in) {
  const std::lock_guard lock(mutex_);
  before_command(in);
  check(calls.copy(in, to, from, bytes, nullptr, 0, nullptr), "zeCommandListAppendMemoryCopy");
}
void shared_context::fill(void* to, unsigned char value, std::size_t bytes, abi::list* in) {
  const std::lock_guard lock(mutex_);
  before_command(in);
  check(calls.fill(in, to, &value, 1, bytes, nullptr, 0, nullptr), "zeCommandListAppendMemoryFill");
}
void shared_context::launch(abi::kernel* kernel, abi::group_count groups, std::uint32_t group_size,
                            void** arguments, const std::size_t* sizes, std::size_t count, abi::list* in) {
  // The lock protects the kernel, too: it holds its arguments until it is appended.
  const std::lock_guard lock(mutex_);
  check(calls.kernel_group_size(kernel, group_size, 1, 1), "zeKernelSetGroupSize");
  for (std::size_t i = 0; i < count; ++i)
    check(calls.kernel_argument(kernel, static_cast<std::uint32_t>(i), sizes[i], arguments[i]),
          "zeKernelSetArgumentValue");
  before_command(in);
  check(calls.launch(in, kernel, &groups, nullptr, 0, nullptr), "zeCommandListAppendLaunchKernel");
}

void shared_context::record(mark& m, abi::list* in) {
  const std::lock_guard lock(mutex_);
  m.latest = append_moment(in);
}
void shared_context::wait(const mark& m, abi::list* in) {
  const std::lock_guard lock(mutex_);
  if (m.latest && calls.event_query(m.latest->event) != abi::success) append_wait(m.latest, in);
}
void shared_context::wait(const gate& g, abi::list* in) {
  const std::lock_guard lock(mutex_);
  append_wait(g.opened, in);
}
void shared_context::open(const gate& g, abi::list* in) {
  const std::lock_guard lock(mutex_);
  before_command(in);
  check(calls.copy(in, g.value, one_, sizeof *one_, nullptr, 0, nullptr), "zeCommandListAppendMemoryCopy");
  check(calls.barrier(in, g.opened->event, 0, nullptr), "zeCommandListAppendBarrier");
}
void shared_context::order(abi::list* in) {
  const std::lock_guard lock(mutex_);
  before_command(in);
}

shared_context::gate shared_context::make_gate() {
  const std::lock_guard lock(mutex_);
  if (spare_gates_.empty()) {
    void* const page = allocate(gates_per_page * bytes_per_gate, memory_kind::pinned);
    gate_pages_.push_back(page);
    for (std::size_t i = 0; i < gates_per_page; ++i)
      spare_gates_.push_back(new (static_cast<std::byte*>(page) + i * bytes_per_gate)
                                 std::atomic<std::uint64_t>(0));
  }
  gate made;
  made.opened = take_moment();
  made.value = spare_gates_.back();
  spare_gates_.pop_back();
  made.value->store(0, std::memory_order_release);
  return made;
}
void shared_context::destroy_gate(gate g) noexcept {
  const std::lock_guard lock(mutex_);
  spare_gates_.push_back(g.value);
}

// ---- the host ----

abi::result shared_context::query(const mark& m) noexcept {
  const std::lock_guard lock(mutex_);
  return m.latest ? calls.event_query(m.latest->event) : abi::success;
}

abi::result shared_context::health(abi::list* of) noexcept {
  const std::lock_guard lock(mutex_);
  if (const abi::result code = calls.device_status(device); lost(code)) return code;
  if (calls.list_synchronize != nullptr)
    if (const abi::result code = calls.list_synchronize(of, 0); lost(code)) return code;
  const auto found = streams_.find(of);
  if (found == streams_.end() || found->second.pending.empty()) return abi::success;
  // Some drivers detect a hang only while the host waits.
  return calls.event_synchronize(found->second.pending.front()->event, 0);
}

bool shared_context::synchronize(abi::list* l, std::chrono::milliseconds longest) noexcept {
  mark end;
  try {
    record(end, l);
  } catch (const error&) {
    return false;
  }
  const auto until = clock::now() + longest;
  auto health_at = clock::now() + between_health_checks;
  for (;;) {
    const abi::result code = query(end);
    if (code == abi::success) return true;
    const auto now = clock::now();
    if (code != abi::not_ready || now >= until) return false;
    if (now >= health_at) {
      if (lost(health(l))) return false;
      health_at = now + between_health_checks;
    }
    std::this_thread::sleep_for(shortest_pause);
  }
}

void shared_context::watch(const mark& m, std::shared_ptr<const gpu::detail::doorbell_handle> b) {
  std::shared_ptr<moment> until;
  {
    const std::lock_guard lock(mutex_);
    until = m.latest;
  }
  if (!until) return b->notify();
  {
    const std::lock_guard lock(watch_mutex_);
    watched_.push_back({std::move(until), std::move(b)});
  }
  watch_changed_.notify_one();
}

void shared_context::watch_loop() noexcept {
  std::unique_lock lock(watch_mutex_);
  clock::duration pause = shortest_pause;
  std::size_t seen = 0;
  auto health_at = clock::now();
  while (!stopping_) {
    if (watched_.empty()) {
      watch_changed_.wait(lock, [this] { return stopping_ || !watched_.empty(); });
      health_at = clock::now() + between_health_checks;
      continue;
    }
    bool changed = watched_.size() > seen;
    std::vector<watched> passed;
    std::erase_if(watched_, [&](watched& w) {
      if (calls.event_query(w.until->event) != abi::success) return false;
      passed.push_back(std::move(w));
      return true;
    });
    changed |= !passed.empty();
    seen = watched_.size();
    if (const auto now = clock::now(); now >= health_at) {
      health_at = now + between_health_checks;
      // Wakes all loops, which find the failure themselves.
      if (lost(calls.device_status(device)))
        passed.insert(passed.end(), watched_.begin(), watched_.end()), watched_.clear();
    }
    pause = changed ? shortest_pause : std::min<clock::duration>(2 * pause, longest_pause);
    lock.unlock();
    for (const watched& w : passed) w.doorbell->notify();
    passed.clear();
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
}

// ---- memory ----

void* shared_context::allocate(std::size_t bytes, memory_kind kind) {
  void* made = nullptr;
  if (kind == memory_kind::pinned) {
    const abi::host_memory_desc how;
    check(calls.alloc_host(context, &how, bytes, alignment, &made), "zeMemAllocHost");
  } else {
    const abi::device_memory_desc how;
    check(calls.alloc_device(context, &how, bytes, alignment, device, &made), "zeMemAllocDevice");
  }
  return made;
}

memory_info shared_context::describe(const void* memory) const noexcept {
  memory_info found;
  abi::memory_properties about;
  abi::device* of = nullptr;
  if (calls.memory_properties_of(context, memory, &about, &of) != abi::success ||
      about.type == abi::memory_unknown)
    return found;
  found.kind = about.type == abi::memory_device ? memory_kind::device
               : about.type == abi::memory_host ? memory_kind::pinned
                                                : memory_kind::managed;
  found.device = ordinal;
  if (of != nullptr && of != device)
    for (std::size_t i = 0; i < calls.gpus.size(); ++i)
      if (calls.gpus[i].handle == of) found.device = static_cast<int>(i);
  found.id = about.id;
  void* base = nullptr;
  std::size_t bytes = 0;
  if (calls.address_range(context, memory, &base, &bytes) == abi::success) {
    found.base = base;
    found.bytes = bytes;
  }
  found.shareable = about.type == abi::memory_device;
  return found;
}

}  // namespace tutti::level_zero
