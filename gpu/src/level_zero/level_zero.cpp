// SPDX-License-Identifier: Apache-2.0
// Level Zero: the driver of a GPU, and the public functions.
#include <tutti/level_zero.hpp>

#include "device/open_once.hpp"
#include "level_zero/level_zero_api.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

namespace tutti::level_zero {
using namespace gpu::impl;
namespace {

using gpu::memory_info;
using gpu::memory_kind;

constexpr std::size_t most_waits_without_a_moment = 64;
constexpr std::size_t alignment = 256;
constexpr auto longest_farewell = std::chrono::seconds(10);

constexpr std::uint32_t events_per_pool = 64;

ze_command_list_handle_t list_of(void* stream) noexcept {
  return static_cast<ze_command_list_handle_t>(stream);
}

// ---- memory of other processes ----
//
// On Linux a handle for it begins with a descriptor of the exporting process, which the opening process needs as its
// own. Newer drivers see to that, and put the process id into the handle.

struct address {
  ze_ipc_mem_handle_t handle{};
  std::int32_t process = 0;
  std::uint64_t numbers = 0;  // PID namespace of `process`
};

std::uint64_t file_of(int descriptor) noexcept {
  struct stat s{};
  return ::fstat(descriptor, &s) == 0 ? s.st_ino : 0;
}
std::uint64_t process_numbers() noexcept {
  struct stat s{};
  return ::stat("/proc/self/ns/pid", &s) == 0 ? s.st_ino : 0;
}

// Duplicates the other process's descriptor into this process.
int take_descriptor(const address& of) {
  if (of.numbers != process_numbers())
    throw error(errc::not_supported, "the ranks are in containers that do not see each other's processes");
  int theirs = -1;
  std::memcpy(&theirs, of.handle.data, sizeof theirs);
  const auto process = static_cast<int>(::syscall(SYS_pidfd_open, of.process, 0));
  const int taken = process < 0 ? -1 : static_cast<int>(::syscall(SYS_pidfd_getfd, process, theirs, 0));
  const int code = errno;
  if (process >= 0) ::close(process);
  if (taken < 0)
    throw error(
        errc::not_supported,
        fmt::format("the descriptor of process {}'s memory cannot be taken: {} (it needs Linux 5.6, one "
                    "user, and, where kernel.yama.ptrace_scope is not 0, CAP_SYS_PTRACE)",
                    of.process, std::system_category().message(code)));
  return taken;
}

bool names_its_process(const address& n) noexcept {
  for (std::size_t at = sizeof(int); at + sizeof n.process <= sizeof n.handle.data; ++at)
    if (std::memcmp(n.handle.data + at, &n.process, sizeof n.process) == 0) return true;
  return false;
}

}  // namespace

// Context, events and streams. Shared by all loops of the process. tutti has no kernels for it: reductions are
// staged, or oneCCL does them. Drivers wait for events by spinning: nothing wakes a loop that sleeps, which looks
// again by its timer.
//
// A Level Zero event is signalled once, and may be reset only when nothing waits for it. So each record of a
// stream is a moment with its own event. The event returns to the store once the device has passed all that
// refers to it: a wait is over when the next moment of its stream has passed.
//
// Streams are immediate command lists. Lists of drivers before 1.7 do not keep the order of their commands;
// barriers do.
class level_zero_driver final : public driver, process_sharing {
 public:
  static constexpr const char *vendor_name = "Level Zero", *namespace_name = "level_zero";

  level_zero_driver(const abi::table& c, int n)
      : driver(n), calls(c), native(c.gpus.at(static_cast<std::size_t>(n))) {
    auto about = abi::zeroed<ze_device_properties_t>(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
    check(calls.zeDeviceGetProperties(native.device, &about), "zeDeviceGetProperties");
    name_ = fmt::format("level_zero device {} ({})", ordinal_, about.name);
    can_.gate = true;
    // Drivers derive the UUID from the slot, so equal hosts have equal ones. The boot id tells hosts apart.
    std::string host;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), host);
    identity_ = fmt::format("level-zero-{:02x}-{}", fmt::join(about.uuid.id, ""), host);
    find_queues();
    ze_api_version_t version{};
    in_order_ = calls.zeDriverGetApiVersion(native.driver, &version) == ZE_RESULT_SUCCESS &&
                version >= ZE_MAKE_VERSION(1, 7);
    const auto how = abi::zeroed<ze_context_desc_t>(ZE_STRUCTURE_TYPE_CONTEXT_DESC);
    check(calls.one_at_a_time(calls.zeContextCreate, native.driver, &how, &native.context),
          "zeContextCreate");
    auto ipc = abi::zeroed<ze_driver_ipc_properties_t>(ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES);
    shares_ = calls.zeDriverGetIpcProperties(native.driver, &ipc) == ZE_RESULT_SUCCESS &&
              (ipc.flags & ZE_IPC_PROPERTY_FLAG_MEMORY) != 0;
    one_ = new (allocate(sizeof(std::uint64_t), memory_kind::pinned)) std::uint64_t(1);
  }

  ~level_zero_driver() override {
    const auto all_gone = [this] {
      const std::lock_guard lock(mutex_);
      sweep();
      return std::ranges::none_of(streams_, [](const auto& e) { return e.second.destroyed; });
    };
    if (!wait_until(all_gone, nullptr, longest_farewell) && !loss(nullptr)) {
      // Keeps what the device may still use, and the context around it.
      static std::mutex mutex;
      static auto& left = *new std::vector<decltype(streams_)>;
      const std::lock_guard lock(mutex);
      left.push_back(std::move(streams_));
      return;
    }
    // A lost device accesses nothing.
    for (const auto& [list, s] : streams_)
      if (s.destroyed) calls.one_at_a_time(calls.zeCommandListDestroy, list);
    streams_.clear();
    words_.free_pages(*this);
    free(one_, memory_kind::pinned);
    for (ze_event_handle_t e : events_) calls.one_at_a_time(calls.zeEventDestroy, e);
    for (ze_event_pool_handle_t p : pools_) calls.one_at_a_time(calls.zeEventPoolDestroy, p);
    calls.one_at_a_time(calls.zeContextDestroy, native.context);
  }

  // ---- memory ----

  void* allocate(std::size_t bytes, memory_kind kind) override {
    void* made = nullptr;
    if (kind == memory_kind::pinned) {
      const auto how = abi::zeroed<ze_host_mem_alloc_desc_t>(ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
      check(calls.zeMemAllocHost(native.context, &how, bytes, alignment, &made), "zeMemAllocHost");
    } else {
      const auto how = abi::zeroed<ze_device_mem_alloc_desc_t>(ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
      check(calls.zeMemAllocDevice(native.context, &how, bytes, alignment, native.device, &made),
            "zeMemAllocDevice");
    }
    return made;
  }
  void free(void* memory, memory_kind) noexcept override { calls.zeMemFree(native.context, memory); }
  memory_info describe(const void* memory) const noexcept override {
    memory_info found;
    auto about =
        abi::zeroed<ze_memory_allocation_properties_t>(ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES);
    ze_device_handle_t of = nullptr;
    if (calls.zeMemGetAllocProperties(native.context, memory, &about, &of) != ZE_RESULT_SUCCESS ||
        about.type == ZE_MEMORY_TYPE_UNKNOWN)
      return found;
    found.kind = about.type == ZE_MEMORY_TYPE_DEVICE ? memory_kind::device
                 : about.type == ZE_MEMORY_TYPE_HOST ? memory_kind::pinned
                                                     : memory_kind::managed;
    found.device = ordinal_;
    if (of != nullptr && of != native.device)
      for (std::size_t i = 0; i < calls.gpus.size(); ++i)
        if (calls.gpus[i].device == of) found.device = static_cast<int>(i);
    void* base = nullptr;
    if (calls.zeMemGetAddressRange(native.context, memory, &base, &found.bytes) == ZE_RESULT_SUCCESS)
      found.base = base;
    return found;
  }
  process_sharing* sharing() noexcept override { return shares_ ? this : nullptr; }

  // ---- streams, events and words ----

  void* make_stream(bool urgent) override {
    const std::lock_guard lock(mutex_);
    sweep();
    auto how = abi::zeroed<ze_command_queue_desc_t>(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
    how.ordinal = group_;
    how.index = next_queue_++ % group_queues_;
    how.mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
    how.priority = urgent ? ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH : ZE_COMMAND_QUEUE_PRIORITY_NORMAL;
    how.flags = in_order_ ? abi::queue_in_order : 0;
    ze_command_list_handle_t made = nullptr;
    const auto create = [&] {
      return calls.one_at_a_time(calls.zeCommandListCreateImmediate, native.context, native.device, &how,
                                 &made);
    };
    ze_result_t code = create();
    if (in_order_ && code != ZE_RESULT_SUCCESS && !abi::lost(code)) {
      // An old validation layer in front of the driver may not know the flag.
      in_order_ = false;
      how.flags = 0;
      code = create();
    }
    check(code, "zeCommandListCreateImmediate");
    list_state s;
    s.in_order = in_order_;
    streams_.insert_or_assign(made, std::move(s));
    return made;
  }
  // Commands in it still run.
  void destroy_stream(void* stream) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(list_of(stream));
    if (found == streams_.end()) return;
    found->second.destroyed = true;
    sweep();
  }
  void* make_event() override { return new std::shared_ptr<moment>; }
  void destroy_event(void* event) noexcept override {
    const std::lock_guard lock(mutex_);
    delete &moment_of(event);
  }
  // Words serve only as gates: 0, then 1.
  word make_word() override {
    const std::lock_guard lock(mutex_);
    auto opened = std::make_unique<std::shared_ptr<moment>>(take_moment());
    return word{words_.take(*this), opened.release()};
  }
  void destroy_word(word w) noexcept override {
    destroy_event(w.handle);
    words_.give_back(w.value);
  }

  // ---- work ----

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
    check(calls.zeCommandListAppendMemoryCopy(list_of(stream), to, from, bytes, nullptr, 0, nullptr),
          "zeCommandListAppendMemoryCopy");
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
    check(calls.zeCommandListAppendMemoryFill(list_of(stream), to, &value, 1, bytes, nullptr, 0, nullptr),
          "zeCommandListAppendMemoryFill");
  }
  void record(void* event, void* stream) override {
    const std::lock_guard lock(mutex_);
    moment_of(event) = append_moment(list_of(stream));
  }
  void wait(void* stream, void* event) override {
    const std::shared_ptr<moment>& latest = moment_of(event);
    const std::lock_guard lock(mutex_);
    if (latest && calls.zeEventQueryStatus(latest->event) != ZE_RESULT_SUCCESS)
      append_wait(latest, list_of(stream));
  }
  void wait(void* stream, const word& w, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    append_wait(moment_of(w.handle), list_of(stream));
  }
  void write(void* stream, const word& w, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
    check(calls.zeCommandListAppendMemoryCopy(list_of(stream), w.value, one_, sizeof *one_, nullptr, 0,
                                              nullptr),
          "zeCommandListAppendMemoryCopy");
    append_barrier(list_of(stream), moment_of(w.handle)->event);
  }
  void changed(const word& w) noexcept override { calls.zeEventHostSignal(moment_of(w.handle)->event); }
  void append_kernel(ze_kernel_handle_t kernel, ze_group_count_t groups, std::uint32_t group_size,
                     void** arguments, const std::size_t* sizes, std::size_t count, void* stream) {
    // The lock protects the kernel, too: it holds its arguments until it is appended.
    const std::lock_guard lock(mutex_);
    check(calls.zeKernelSetGroupSize(kernel, group_size, 1, 1), "zeKernelSetGroupSize");
    for (std::size_t i = 0; i < count; ++i)
      check(calls.zeKernelSetArgumentValue(kernel, static_cast<std::uint32_t>(i), sizes[i], arguments[i]),
            "zeKernelSetArgumentValue");
    before_command(list_of(stream));
    check(calls.zeCommandListAppendLaunchKernel(list_of(stream), kernel, &groups, nullptr, 0, nullptr),
          "zeCommandListAppendLaunchKernel");
  }
  // Later commands run after earlier ones.
  void order(void* stream) {
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
  }

  // ---- the host ----

  bool query(void* event) override {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<moment>& m = moment_of(event);
    const ze_result_t code = m ? calls.zeEventQueryStatus(m->event) : ZE_RESULT_SUCCESS;
    if (code != ZE_RESULT_SUCCESS && code != ZE_RESULT_NOT_READY)
      throw error(errc::device_failed, "zeEventQueryStatus: " + explain(code));
    return code == ZE_RESULT_SUCCESS;
  }
  std::optional<std::string> loss(void* stream) override {
    const ze_result_t code = health_of(list_of(stream));
    if (!abi::lost(code)) return std::nullopt;
    return fmt::format("the device has been lost: {} (dmesg says why)", explain(code));
  }

  std::string explain(ze_result_t code) const { return calls.explain(code, native.driver); }
  // Throws tutti::error if the call `what` has failed.
  void check(ze_result_t code, const char* what) const {
    if (code == ZE_RESULT_SUCCESS) return;
    errc as = errc::system;
    if (abi::lost(code)) as = errc::device_failed;
    if (code == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY || code == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
      as = errc::resources;
    if (code == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE || code == ZE_RESULT_ERROR_UNSUPPORTED_VERSION ||
        code == ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
      as = errc::not_supported;
    if (code == ZE_RESULT_ERROR_INVALID_ARGUMENT || code == ZE_RESULT_ERROR_INVALID_ENUMERATION ||
        (code >= ZE_RESULT_ERROR_INVALID_NULL_HANDLE && code <= ZE_RESULT_ERROR_UNSUPPORTED_SIZE) ||
        code == ZE_RESULT_ERROR_INVALID_NATIVE_BINARY || code == ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
      as = errc::invalid_argument;
    throw error(as, fmt::format("level_zero device {}: {}: {}", ordinal_, what, explain(code)));
  }

  const abi::table& calls;
  handles native;

 private:
  // ---- other processes, by Level Zero IPC ----

  // The descriptor of opened memory, kept while that is open.
  struct descriptor {
    int number = -1;
    std::uint64_t file = 0;
  };
  // A Level Zero event may be reset only when no process waits for it.
  bool has_events() const noexcept override { return false; }
  shared_name name_memory(void* start) override {
    address n;
    check(calls.zeMemGetIpcHandle(native.context, start, &n.handle), "zeMemGetIpcHandle");
    n.process = ::getpid();
    n.numbers = process_numbers();
    return shared_name(n);
  }
  void* open_memory(const shared_name& of) override {
    const auto n = of.as<address>();
    const auto open = [this](const ze_ipc_mem_handle_t& handle, void** opened) {
      return calls.zeMemOpenIpcHandle(native.context, native.device, handle, 0, opened);
    };
    void* opened = nullptr;
    if (names_its_process(n) && open(n.handle, &opened) == ZE_RESULT_SUCCESS) return opened;

    descriptor ours;
    ours.number = take_descriptor(n);
    ours.file = file_of(ours.number);
    ze_ipc_mem_handle_t here = n.handle;
    std::memcpy(here.data, &ours.number, sizeof ours.number);
    if (const ze_result_t code = open(here, &opened); code != ZE_RESULT_SUCCESS) {
      ::close(ours.number);
      check(code, "zeMemOpenIpcHandle");
    }
    const std::lock_guard lock(opened_mutex_);
    opened_.emplace(opened, ours);
    return opened;
  }
  void close_memory(void* opened) noexcept override {
    // Until its entry is gone: another loop may open memory at the same address.
    const std::lock_guard lock(opened_mutex_);
    calls.zeMemCloseIpcHandle(native.context, opened);
    const auto found = opened_.find(opened);
    if (found == opened_.end()) return;
    // Some drivers close the descriptor with the memory, and its number may belong to another file by now.
    if (file_of(found->second.number) == found->second.file) ::close(found->second.number);
    opened_.erase(found);
  }

  // ---- events and queues ----

  // An event of the store, to which it returns: mutex_ is held wherever a moment ends.
  struct moment {
    moment(std::vector<ze_event_handle_t>& store, ze_event_handle_t e) noexcept : event(e), home(store) {}
    moment(const moment&) = delete;
    moment& operator=(const moment&) = delete;
    ~moment() { home.push_back(event); }
    const ze_event_handle_t event;
    std::vector<ze_event_handle_t>& home;
    std::vector<std::shared_ptr<moment>> before;  // its stream has waited for these since its last moment
  };
  struct list_state {
    bool in_order = false;
    bool destroyed = false;                           // by the library; Level Zero keeps it until it is done
    bool has_last_moment = false;                     // then: behind all its commands
    std::deque<std::shared_ptr<moment>> pending;      // recorded, not known to have passed
    std::vector<std::shared_ptr<moment>> waited_for;  // since the last record
  };
  // The handle of an event of impl::driver has the moment recorded last (null: none), that of a word the moment
  // which is signalled once the gate is open.
  static std::shared_ptr<moment>& moment_of(void* handle) noexcept {
    return *static_cast<std::shared_ptr<moment>*>(handle);
  }

  void find_queues() {
    const auto kinds = abi::all_of(
        [this](auto... to) {
          check(calls.zeDeviceGetCommandQueueGroupProperties(native.device, to...),
                "zeDeviceGetCommandQueueGroupProperties");
          return ZE_RESULT_SUCCESS;
        },
        abi::zeroed<ze_command_queue_group_properties_t>(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES));
    const auto computes = std::find_if(kinds.begin(), kinds.end(), [](const auto& k) {
      return (k.flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) != 0;
    });
    if (computes == kinds.end())
      throw error(errc::not_supported, fmt::format("{} has no queues for kernels and copies", name_));
    group_ = static_cast<std::uint32_t>(computes - kinds.begin());
    group_queues_ = std::max(1U, computes->numQueues);
  }

  // These require mutex_.
  void before_command(ze_command_list_handle_t in) {
    if (!streams_[in].in_order) append_barrier(in);
  }
  void append_barrier(ze_command_list_handle_t in, ze_event_handle_t signal = nullptr,
                      ze_event_handle_t awaited = nullptr) {
    check(calls.zeCommandListAppendBarrier(in, signal, awaited == nullptr ? 0 : 1, &awaited),
          "zeCommandListAppendBarrier");
  }
  std::shared_ptr<moment> append_moment(ze_command_list_handle_t in) {
    std::shared_ptr<moment> m = take_moment();
    append(m, in, streams_[in]);
    return m;
  }
  void append(const std::shared_ptr<moment>& m, ze_command_list_handle_t in, list_state& s) {
    append_barrier(in, m->event);
    m->before = std::exchange(s.waited_for, {});
    s.pending.push_back(m);
  }
  void append_wait(const std::shared_ptr<moment>& m, ze_command_list_handle_t in) {
    append_barrier(in, nullptr, m->event);
    list_state& s = streams_[in];
    s.waited_for.push_back(m);
    if (s.waited_for.size() >= most_waits_without_a_moment) append_moment(in);
  }
  std::shared_ptr<moment> take_moment() {
    if (spare_events_.empty()) sweep();
    return new_moment();
  }
  std::shared_ptr<moment> new_moment() {
    if (spare_events_.empty()) add_events();
    const ze_event_handle_t e = spare_events_.back();
    check(calls.zeEventHostReset(e), "zeEventHostReset");
    spare_events_.pop_back();
    return std::make_shared<moment>(spare_events_, e);
  }
  void add_events() {
    auto how = abi::zeroed<ze_event_pool_desc_t>(ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
    how.flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
    how.count = events_per_pool;
    ze_event_pool_handle_t pool = nullptr;
    check(calls.one_at_a_time(calls.zeEventPoolCreate, native.context, &how, 1U, &native.device, &pool),
          "zeEventPoolCreate");
    pools_.push_back(pool);
    auto at = abi::zeroed<ze_event_desc_t>(ZE_STRUCTURE_TYPE_EVENT_DESC);
    at.signal = at.wait = ZE_EVENT_SCOPE_FLAG_HOST;
    for (; at.index < events_per_pool; ++at.index) {
      ze_event_handle_t e = nullptr;
      check(calls.one_at_a_time(calls.zeEventCreate, pool, &at, &e), "zeEventCreate");
      events_.push_back(e);
      spare_events_.push_back(e);
    }
  }
  // Destroys destroyed lists that are done.
  void sweep() noexcept {
    for (auto at = streams_.begin(); at != streams_.end();) {
      auto& [list, s] = *at;
      try {
        if (s.destroyed && !s.has_last_moment) append(new_moment(), list, s);
        s.has_last_moment = s.destroyed;
      } catch (const std::exception&) {
        // The next sweep tries again. A lost device takes no event; the destructor then destroys the list.
      }
      forget_passed(s);
      if (s.has_last_moment && s.pending.empty()) {
        calls.one_at_a_time(calls.zeCommandListDestroy, list);
        at = streams_.erase(at);
      } else {
        ++at;
      }
    }
  }

  void forget_passed(list_state& s) noexcept {
    while (!s.pending.empty() && calls.zeEventQueryStatus(s.pending.front()->event) == ZE_RESULT_SUCCESS) {
      s.pending.front()->before.clear();
      s.pending.pop_front();
    }
  }
  // Null: of the device alone.
  ze_result_t health_of(ze_command_list_handle_t l) noexcept {
    const std::lock_guard lock(mutex_);
    if (const ze_result_t code = calls.zeDeviceGetStatus(native.device); abi::lost(code)) return code;
    if (l == nullptr) return ZE_RESULT_SUCCESS;
    if (calls.zeCommandListHostSynchronize != nullptr)
      if (const ze_result_t code = calls.zeCommandListHostSynchronize(l, 0); abi::lost(code)) return code;
    const auto found = streams_.find(l);
    if (found == streams_.end() || found->second.pending.empty()) return ZE_RESULT_SUCCESS;
    // Some drivers detect a hang only while the host waits.
    return calls.zeEventHostSynchronize(found->second.pending.front()->event, 0);
  }

  bool shares_ = false;      // other processes can use its memory
  std::uint32_t group_ = 0;  // of queues for kernels and copies
  std::uint32_t group_queues_ = 1;
  std::uint32_t next_queue_ = 0;
  bool in_order_ = false;  // the driver's lists keep the order
  std::vector<ze_event_pool_handle_t> pools_;
  std::vector<ze_event_handle_t> events_, spare_events_;  // all; those that are unsignalled when taken
  std::mutex mutex_;                                      // lists are not thread-safe
  std::map<ze_command_list_handle_t, list_state> streams_;
  std::uint64_t* one_ = nullptr;  // the value that opens gates
  word_pool words_;
  std::mutex opened_mutex_;
  std::multimap<void*, descriptor> opened_;  // two loops may open the same memory
};

int device_count() noexcept { return abi::load().devices(); }
std::string why_not() { return abi::load().why; }

std::shared_ptr<driver> driver_at(int ordinal) { return driver_for<level_zero_driver>(abi::load(), ordinal); }
gpu::device open(const communicator& of, int ordinal) { return open_once(of, driver_at(ordinal)); }
gpu::device open(runtime& rt, int ordinal) { return open_once(rt, driver_at(ordinal)); }

handles native(const gpu::device& on) {
  return driver_of<level_zero_driver>(on, "level_zero::native")->native;
}

const gpu::device& stream::checked(const gpu::device& on) {
  static_cast<void>(driver_of<level_zero_driver>(on, "a Level Zero stream"));
  return on;
}

_ze_command_list_handle_t* stream::get() const {
  driver_of<level_zero_driver>(on(), "level_zero::stream::get")->order(gpu::stream::native());
  return static_cast<ze_command_list_handle_t>(gpu::stream::native());
}

// ---- kernels of the program ----

struct module::loaded {
  const std::shared_ptr<level_zero_driver> of;
  const ze_module_handle_t handle;
  std::map<std::string, ze_kernel_handle_t> kernels = {};
  ~loaded() {
    for (const auto& [name, k] : kernels) of->calls.one_at_a_time(of->calls.zeKernelDestroy, k);
    of->calls.one_at_a_time(of->calls.zeModuleDestroy, handle);
  }
};

module::module(const gpu::device& on, std::span<const std::byte> image, format is, const char* build_flags) {
  const auto of = driver_of<level_zero_driver>(on, "level_zero::module");
  const abi::table& calls = of->calls;
  auto what = abi::zeroed<ze_module_desc_t>(ZE_STRUCTURE_TYPE_MODULE_DESC);
  what.format = is == format::spirv ? ZE_MODULE_FORMAT_IL_SPIRV : ZE_MODULE_FORMAT_NATIVE;
  what.inputSize = image.size();
  what.pInputModule = reinterpret_cast<const std::uint8_t*>(image.data());
  what.pBuildFlags = build_flags;
  ze_module_handle_t handle = nullptr;
  ze_module_build_log_handle_t log = nullptr;
  const ze_result_t code =
      image.empty() ? ZE_RESULT_ERROR_INVALID_NATIVE_BINARY
                    : calls.one_at_a_time(calls.zeModuleCreate, of->native.context, of->native.device, &what,
                                          &handle, calls.wrapped ? nullptr : &log);
  std::string said;
  if (log != nullptr) {
    std::size_t bytes = 0;
    if (code != ZE_RESULT_SUCCESS &&
        calls.zeModuleBuildLogGetString(log, &bytes, nullptr) == ZE_RESULT_SUCCESS && bytes > 1) {
      said.resize(bytes);
      if (calls.zeModuleBuildLogGetString(log, &bytes, said.data()) != ZE_RESULT_SUCCESS) said.clear();
      while (!said.empty() && said.back() == '\0') said.pop_back();
    }
    calls.zeModuleBuildLogDestroy(log);
  }
  if (code != ZE_RESULT_SUCCESS)
    throw error(errc::invalid_argument, fmt::format("level_zero::module on {}: {}{}{}", on.name(),
                                                    of->explain(code), said.empty() ? "" : ": ", said));
  state_.reset(new loaded{of, handle});
}

void* module::kernel(const char* name) const {
  const level_zero_driver& of = *state_->of;
  const auto known = state_->kernels.find(name);
  if (known != state_->kernels.end()) return known->second;
  auto what = abi::zeroed<ze_kernel_desc_t>(ZE_STRUCTURE_TYPE_KERNEL_DESC);
  what.pKernelName = name;
  ze_kernel_handle_t made = nullptr;
  const ze_result_t code = of.calls.one_at_a_time(of.calls.zeKernelCreate, state_->handle, &what, &made);
  if (code != ZE_RESULT_SUCCESS)
    throw error(errc::invalid_argument,
                fmt::format("level_zero::module: the kernel {}: {}", name, of.explain(code)));
  state_->kernels.emplace(name, made);
  // Kernels may access memory of all kinds through pointers in structures.
  of.check(of.calls.zeKernelSetIndirectAccess(made, ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST |
                                                        ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE |
                                                        ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED),
           "zeKernelSetIndirectAccess");
  return made;
}

void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments,
                       const std::size_t* sizes, std::size_t count) {
  const auto d = driver_of<level_zero_driver>(in.on(), "level_zero::launch");
  d->append_kernel(static_cast<ze_kernel_handle_t>(kernel), {size.groups, 1, 1}, size.group_size, arguments,
                   sizes, count, in.native());
}

}  // namespace tutti::level_zero
