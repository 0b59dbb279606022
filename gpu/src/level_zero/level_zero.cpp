// SPDX-License-Identifier: Apache-2.0
// Level Zero: the driver of a GPU, and the public functions.
#include <tutti/level_zero.hpp>

#include "device/open_once.hpp"
#include "level_zero/driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <utility>

namespace tutti::level_zero {
namespace {

using gpu::memory_info;
using gpu::memory_kind;
using gpu::detail::word;
using clock = std::chrono::steady_clock;

constexpr std::size_t most_waits_without_a_moment = 64;
constexpr std::size_t alignment = 256;
constexpr auto longest_farewell = std::chrono::seconds(10);

abi::list* list_of(void* stream) noexcept { return static_cast<abi::list*>(stream); }

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
class level_zero_driver final : public gpu::detail::driver {
 public:
  level_zero_driver(const abi::table& c, int n) : calls(c), ordinal_(n) {
    const abi::table::gpu& here = calls.gpus.at(static_cast<std::size_t>(n));
    native.driver = here.of;
    native.device = here.handle;
    abi::device_properties about;
    check(calls.device_properties_of(native.device, &about), "zeDeviceGetProperties");
    name_ = about.name;
    identity_ = "level-zero-";
    for (const std::uint8_t b : about.uuid) identity_ += fmt::format("{:02x}", b);
    // Drivers derive the UUID from the slot, so equal hosts have equal ones. The boot id tells hosts apart.
    std::string host;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), host);
    identity_ += "-" + host;
    find_queues();
    std::uint32_t version = 0;
    in_order_ =
        calls.driver_api_version(native.driver, &version) == abi::success && version >= abi::version_1_7;
    const abi::context_desc how;
    {
      const std::lock_guard handles(calls.handles);
      check(calls.context_create(native.driver, &how, &native.context), "zeContextCreate");
    }
    abi::ipc_properties ipc;
    if (calls.driver_ipc(native.driver, &ipc) == abi::success && (ipc.flags & abi::ipc_of_memory) != 0)
      sharing_ =
          make_sharing(calls, native, [this](abi::result code, const char* what) { check(code, what); });
    events_ = std::make_shared<event_store>(calls, native);
    one_ = new (allocate(sizeof(std::uint64_t), memory_kind::pinned)) std::uint64_t(1);
  }
  level_zero_driver(const level_zero_driver&) = delete;
  level_zero_driver& operator=(const level_zero_driver&) = delete;

  ~level_zero_driver() override {
    const auto until = clock::now() + longest_farewell;
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        sweep();
        if (ending_.empty()) break;
      }
      if (lost(calls.device_status(native.device))) {
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
          std::vector<std::pair<abi::list*, list_state>> lists;
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
    words_.free_pages(*this);
    free(one_, memory_kind::pinned);
    events_.reset();
    const std::lock_guard handles(calls.handles);
    calls.context_destroy(native.context);
  }

  std::string name() const override { return fmt::format("level_zero device {} ({})", ordinal_, name_); }
  int ordinal() const noexcept override { return ordinal_; }
  std::string identity() const override { return identity_; }
  gpu::capabilities can() const noexcept override {
    gpu::capabilities c;
    c.gate = true;
    return c;
  }

  // ---- memory ----

  void* allocate(std::size_t bytes, memory_kind kind) override {
    void* made = nullptr;
    if (kind == memory_kind::pinned) {
      const abi::host_memory_desc how;
      check(calls.alloc_host(native.context, &how, bytes, alignment, &made), "zeMemAllocHost");
    } else {
      const abi::device_memory_desc how;
      check(calls.alloc_device(native.context, &how, bytes, alignment, native.device, &made),
            "zeMemAllocDevice");
    }
    return made;
  }
  void free(void* memory, memory_kind) noexcept override { calls.free(native.context, memory); }
  memory_info describe(const void* memory) const noexcept override {
    memory_info found;
    abi::memory_properties about;
    abi::device* of = nullptr;
    if (calls.memory_properties_of(native.context, memory, &about, &of) != abi::success ||
        about.type == abi::memory_unknown)
      return found;
    found.kind = about.type == abi::memory_device ? memory_kind::device
                 : about.type == abi::memory_host ? memory_kind::pinned
                                                  : memory_kind::managed;
    found.device = ordinal_;
    if (of != nullptr && of != native.device)
      for (std::size_t i = 0; i < calls.gpus.size(); ++i)
        if (calls.gpus[i].handle == of) found.device = static_cast<int>(i);
    void* base = nullptr;
    std::size_t bytes = 0;
    if (calls.address_range(native.context, memory, &base, &bytes) == abi::success) {
      found.base = base;
      found.bytes = bytes;
    }
    return found;
  }
  gpu::detail::process_sharing* sharing() noexcept override { return sharing_.get(); }

  // ---- streams, events and words ----

  void* make_stream(bool urgent) override {
    const std::lock_guard lock(mutex_);
    sweep();
    abi::queue_desc how;
    how.ordinal = group_;
    how.index = next_queue_++ % group_queues_;
    how.priority = urgent ? abi::priority_high : abi::priority_normal;
    how.flags = in_order_ ? abi::queue_in_order : 0;
    abi::list* made = nullptr;
    const std::lock_guard handles(calls.handles);
    abi::result code = calls.list_create(native.context, native.device, &how, &made);
    if (in_order_ && code != abi::success && !lost(code)) {
      // An old validation layer in front of the driver may not know the flag.
      in_order_ = false;
      how.flags = 0;
      code = calls.list_create(native.context, native.device, &how, &made);
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
    ending_.emplace_back(found->first, std::move(found->second));
    streams_.erase(found);
    sweep();
  }
  void* make_event() override { return new std::shared_ptr<moment>; }
  void destroy_event(void* event) noexcept override { delete &moment_of(event); }
  // Words serve only as gates: 0, then 1.
  word make_word() override {
    const std::lock_guard lock(mutex_);
    auto opened = std::make_unique<std::shared_ptr<moment>>(take_moment());
    return word{words_.take(*this), opened.release()};
  }
  void destroy_word(word w) noexcept override {
    delete &moment_of(w.handle);
    words_.give_back(w.value);
  }

  // ---- work ----

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
    check(calls.copy(list_of(stream), to, from, bytes, nullptr, 0, nullptr), "zeCommandListAppendMemoryCopy");
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
    check(calls.fill(list_of(stream), to, &value, 1, bytes, nullptr, 0, nullptr),
          "zeCommandListAppendMemoryFill");
  }
  void record(void* event, void* stream) override {
    const std::lock_guard lock(mutex_);
    moment_of(event) = append_moment(list_of(stream));
  }
  void wait(void* stream, void* event) override {
    const std::shared_ptr<moment>& latest = moment_of(event);
    const std::lock_guard lock(mutex_);
    if (latest && calls.event_query(latest->event) != abi::success) append_wait(latest, list_of(stream));
  }
  void wait(void* stream, const word& w, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    append_wait(moment_of(w.handle), list_of(stream));
  }
  void write(void* stream, const word& w, std::uint64_t) override {
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
    check(calls.copy(list_of(stream), w.value, one_, sizeof *one_, nullptr, 0, nullptr),
          "zeCommandListAppendMemoryCopy");
    check(calls.barrier(list_of(stream), moment_of(w.handle)->event, 0, nullptr),
          "zeCommandListAppendBarrier");
  }
  void changed(const word& w) noexcept override { calls.event_signal(moment_of(w.handle)->event); }
  void launch(abi::kernel* kernel, abi::group_count groups, std::uint32_t group_size, void** arguments,
              const std::size_t* sizes, std::size_t count, void* stream) {
    // The lock protects the kernel, too: it holds its arguments until it is appended.
    const std::lock_guard lock(mutex_);
    check(calls.kernel_group_size(kernel, group_size, 1, 1), "zeKernelSetGroupSize");
    for (std::size_t i = 0; i < count; ++i)
      check(calls.kernel_argument(kernel, static_cast<std::uint32_t>(i), sizes[i], arguments[i]),
            "zeKernelSetArgumentValue");
    before_command(list_of(stream));
    check(calls.launch(list_of(stream), kernel, &groups, nullptr, 0, nullptr),
          "zeCommandListAppendLaunchKernel");
  }
  // Later commands run after earlier ones.
  void order(void* stream) {
    const std::lock_guard lock(mutex_);
    before_command(list_of(stream));
  }

  // ---- the host ----

  bool query(void* event) override {
    const abi::result code = status_of(moment_of(event));
    if (code != abi::success && code != abi::not_ready)
      throw error(errc::device_failed, "zeEventQueryStatus: " + calls.explain(code, native.driver));
    return code == abi::success;
  }
  std::optional<std::string> loss(void* stream) override {
    const abi::result code = health_of(list_of(stream));
    if (!lost(code)) return std::nullopt;
    return fmt::format("the device has been lost: {} (dmesg says why)", calls.explain(code, native.driver));
  }

  void check(abi::result code, const char* what) const {
    if (code == abi::success) return;
    errc as = errc::system;
    if (lost(code)) as = errc::device_failed;
    if (code == abi::out_of_host_memory || code == abi::out_of_device_memory) as = errc::resources;
    if (code == abi::unsupported_feature || code == abi::unsupported_version ||
        code == abi::unsupported_enumeration)
      as = errc::not_supported;
    if (code == abi::invalid_argument ||
        (code >= abi::invalid_null_handle && code <= abi::unsupported_size) ||
        code == abi::invalid_enumeration || code == abi::invalid_native_binary ||
        code == abi::invalid_kernel_name)
      as = errc::invalid_argument;
    throw error(
        as, fmt::format("level_zero device {}: {}: {}", ordinal_, what, calls.explain(code, native.driver)));
  }

  const abi::table& calls;
  handles native;

 private:
  struct list_state {
    bool in_order = false;
    bool has_last_moment = false;                     // behind all commands of a destroyed list
    std::deque<std::shared_ptr<moment>> pending;      // recorded, not known to have passed
    std::vector<std::shared_ptr<moment>> waited_for;  // since the last record
  };
  // The handle of an event of detail::driver has the moment recorded last (null: none), that of a word the moment
  // which is signalled once the gate is open.
  static std::shared_ptr<moment>& moment_of(void* handle) noexcept {
    return *static_cast<std::shared_ptr<moment>*>(handle);
  }

  void find_queues() {
    std::uint32_t groups = 0;
    check(calls.device_queue_groups(native.device, &groups, nullptr),
          "zeDeviceGetCommandQueueGroupProperties");
    std::vector<abi::queue_group_properties> kinds(groups);
    check(calls.device_queue_groups(native.device, &groups, kinds.data()),
          "zeDeviceGetCommandQueueGroupProperties");
    const auto computes = std::find_if(kinds.begin(), kinds.end(),
                                       [](const auto& k) { return (k.flags & abi::group_compute) != 0; });
    if (computes == kinds.end())
      throw error(
          errc::not_supported,
          fmt::format("level_zero device {} ({}) has no queues for kernels and copies", ordinal_, name_));
    group_ = static_cast<std::uint32_t>(computes - kinds.begin());
    group_queues_ = std::max(1U, computes->queues);
  }

  // These require mutex_.
  void before_command(abi::list* in) {
    if (!streams_[in].in_order) check(calls.barrier(in, nullptr, 0, nullptr), "zeCommandListAppendBarrier");
  }
  std::shared_ptr<moment> append_moment(abi::list* in) {
    std::shared_ptr<moment> m = take_moment();
    append(m, in, streams_[in]);
    return m;
  }
  void append(const std::shared_ptr<moment>& m, abi::list* in, list_state& s) {
    check(calls.barrier(in, m->event, 0, nullptr), "zeCommandListAppendBarrier");
    m->before = std::exchange(s.waited_for, {});
    s.pending.push_back(m);
  }
  void append_wait(const std::shared_ptr<moment>& m, abi::list* in) {
    abi::event* event = m->event;
    check(calls.barrier(in, nullptr, 1, &event), "zeCommandListAppendBarrier");
    list_state& s = streams_[in];
    s.waited_for.push_back(m);
    if (s.waited_for.size() >= most_waits_without_a_moment) append_moment(in);
  }
  std::shared_ptr<moment> take_moment() {
    if (events_->is_low()) sweep();
    return events_->take();
  }
  void sweep() noexcept {
    for (auto& [list, s] : streams_) forget_passed(s);
    std::erase_if(ending_, [this](auto& e) {
      auto& [list, s] = e;
      try {
        if (!s.has_last_moment) append(events_->take(), list, s);
        s.has_last_moment = true;
      } catch (const std::exception&) {
        // The next sweep tries again. A lost device takes no event; the destructor then destroys the list.
        return false;
      }
      forget_passed(s);
      if (!s.pending.empty()) return false;
      const std::lock_guard handles(calls.handles);
      calls.list_destroy(list);
      return true;
    });
  }

  void forget_passed(list_state& s) noexcept {
    while (!s.pending.empty() && calls.event_query(s.pending.front()->event) == abi::success) {
      s.pending.front()->before.clear();
      s.pending.pop_front();
    }
  }
  abi::result status_of(const std::shared_ptr<moment>& m) noexcept {
    const std::lock_guard lock(mutex_);
    return m ? calls.event_query(m->event) : abi::success;
  }
  abi::result health_of(abi::list* l) noexcept {
    const std::lock_guard lock(mutex_);
    if (const abi::result code = calls.device_status(native.device); lost(code)) return code;
    if (calls.list_synchronize != nullptr)
      if (const abi::result code = calls.list_synchronize(l, 0); lost(code)) return code;
    const auto found = streams_.find(l);
    if (found == streams_.end() || found->second.pending.empty()) return abi::success;
    // Some drivers detect a hang only while the host waits.
    return calls.event_synchronize(found->second.pending.front()->event, 0);
  }

  const int ordinal_;
  std::string name_;
  std::string identity_;
  std::shared_ptr<gpu::detail::process_sharing> sharing_;  // null: other processes cannot use its memory
  std::uint32_t group_ = 0;                                // of queues for kernels and copies
  std::uint32_t group_queues_ = 1;
  std::uint32_t next_queue_ = 0;
  bool in_order_ = false;  // the driver's lists keep the order
  std::shared_ptr<event_store> events_;
  std::mutex mutex_;  // lists are not thread-safe
  std::map<abi::list*, list_state> streams_;
  std::vector<std::pair<abi::list*, list_state>> ending_;  // destroyed, still running
  std::uint64_t* one_ = nullptr;                           // the value that opens gates
  gpu::detail::word_pool words_;
};

namespace {

template <class Loop>
gpu::device open_on(Loop& of, int wanted) {
  return gpu::detail::open_once(of, abi::load(), "Level Zero", "level_zero", wanted,
                                &gpu::detail::shared_context_of<level_zero_driver, abi::table>);
}

std::shared_ptr<level_zero_driver> driver_of(const gpu::device& on, const char* what) {
  return gpu::detail::driver_of<level_zero_driver>(on, what, "Level Zero");
}

}  // namespace

int device_count() noexcept { return abi::load().devices(); }
std::string why_not() { return abi::load().why; }

std::shared_ptr<gpu::detail::driver> make_driver(const abi::table& calls, int ordinal) {
  return std::make_shared<level_zero_driver>(calls, ordinal);
}

std::shared_ptr<void> make_context(int ordinal) {
  return gpu::detail::prepare_context<level_zero_driver>(abi::load(), ordinal);
}
gpu::device open(const communicator& of, int ordinal) { return open_on(of, ordinal); }
gpu::device open(runtime& rt, int ordinal) { return open_on(rt, ordinal); }

handles native(const gpu::device& on) { return driver_of(on, "level_zero::native")->native; }

const gpu::device& stream::checked(const gpu::device& on) {
  static_cast<void>(driver_of(on, "a stream of Level Zero's"));
  return on;
}

_ze_command_list_handle_t* stream::get() const {
  driver_of(on(), "level_zero::stream::get")->order(gpu::stream::native());
  return static_cast<abi::list*>(gpu::stream::native());
}

// ---- kernels of the program ----

struct module::loaded {
  std::shared_ptr<level_zero_driver> of;
  abi::module* handle = nullptr;
  std::map<std::string, abi::kernel*> kernels;
  ~loaded() {
    const std::lock_guard handles(of->calls.handles);
    for (const auto& [name, k] : kernels) of->calls.kernel_destroy(k);
    of->calls.module_destroy(handle);
  }
};

module::module(const gpu::device& on, std::span<const std::byte> image, format is, const char* build_flags) {
  const std::shared_ptr<level_zero_driver> of = driver_of(on, "level_zero::module");
  const abi::table& calls = of->calls;
  abi::module_desc what;
  what.format = is == format::spirv ? abi::format_spirv : abi::format_native;
  what.bytes = image.size();
  what.image = reinterpret_cast<const std::uint8_t*>(image.data());
  what.build_flags = build_flags;
  abi::module* handle = nullptr;
  abi::build_log* log = nullptr;
  const auto create = [&] {
    const std::lock_guard handles(calls.handles);
    return calls.module_create(of->native.context, of->native.device, &what, &handle,
                               calls.wrapped ? nullptr : &log);
  };
  const abi::result code = image.empty() ? abi::invalid_native_binary : create();
  std::string said;
  if (log != nullptr) {
    std::size_t bytes = 0;
    if (code != abi::success && calls.build_log_text(log, &bytes, nullptr) == abi::success && bytes > 1) {
      said.resize(bytes);
      if (calls.build_log_text(log, &bytes, said.data()) != abi::success) said.clear();
      while (!said.empty() && said.back() == '\0') said.pop_back();
    }
    calls.build_log_destroy(log);
  }
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("level_zero::module on {}: {}{}{}", on.name(),
                            calls.explain(code, of->native.driver), said.empty() ? "" : ": ", said));
  state_ = std::make_shared<loaded>();
  state_->of = of;
  state_->handle = handle;
}

void* module::kernel(const char* name) const {
  const level_zero_driver& of = *state_->of;
  const auto known = state_->kernels.find(name);
  if (known != state_->kernels.end()) return known->second;
  abi::kernel_desc what;
  what.name = name;
  abi::kernel* made = nullptr;
  const std::lock_guard handles(of.calls.handles);
  abi::result code = of.calls.kernel_create(state_->handle, &what, &made);
  if (code != abi::success)
    throw error(errc::invalid_argument, fmt::format("level_zero::module: the kernel {}: {}", name,
                                                    of.calls.explain(code, of.native.driver)));
  state_->kernels.emplace(name, made);
  of.check(of.calls.kernel_indirect_access(made, abi::indirect_all), "zeKernelSetIndirectAccess");
  return made;
}

void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments,
                       const std::size_t* sizes, std::size_t count) {
  const std::shared_ptr<level_zero_driver> d = driver_of(in.on(), "level_zero::launch");
  abi::group_count groups;
  groups.x = size.groups;
  d->launch(static_cast<abi::kernel*>(kernel), groups, size.group_size, arguments, sizes, count, in.native());
}

}  // namespace tutti::level_zero
