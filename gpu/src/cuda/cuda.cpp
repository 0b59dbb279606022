// SPDX-License-Identifier: Apache-2.0
// CUDA: the driver of a GPU, and the public functions.
#include <tutti/cuda.hpp>

#include "cuda/cuda_api.hpp"
#include "device/open_once.hpp"
#include "kernels/host_kernels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#ifdef TUTTI_CUDA_KERNELS_FILE
// The bytes of the file, behind a label.
asm(".section .rodata\n"
    ".balign 64\n"
    ".globl tutti_cuda_kernels_begin\n"
    ".hidden tutti_cuda_kernels_begin\n"
    "tutti_cuda_kernels_begin:\n"
    ".incbin \"" TUTTI_CUDA_KERNELS_FILE
    "\"\n"
    ".byte 0\n"
    ".text\n");
extern "C" const unsigned char tutti_cuda_kernels_begin[];
#endif

namespace tutti::cuda {
using namespace gpu::impl;
namespace {

using gpu::memory_info;
using gpu::memory_kind;
using held_doorbell = std::shared_ptr<const doorbell_handle>;

// Of each priority, for all loops of the process.
constexpr std::size_t streams_in_stock = 24;
// Of each loop: each side stream takes one of the few hardware queues.
constexpr std::ptrdiff_t most_sides = 4;
constexpr unsigned threads_per_block = 256;
constexpr auto longest_wait_for_frees = std::chrono::seconds(10);
constexpr auto longest_wait_for_long_free = std::chrono::seconds(1);
using clock = std::chrono::steady_clock;

// Errors after which no call in the context succeeds.
bool lost(abi::result code) noexcept {
  return code == 4 || code == 46 || code == 214 || code == 220 || code == 226 || code == 700 || code == 702 ||
         code == 709 || code == 710 || (code >= 714 && code <= 719) || code == 721 || code == 810 ||
         code == abi::error_unknown;
}

abi::device_pointer address(const void* p) noexcept { return reinterpret_cast<abi::device_pointer>(p); }
abi::stream* stream_of(void* s) noexcept { return static_cast<abi::stream*>(s); }
abi::event* event_of(void* e) noexcept { return static_cast<abi::event*>(e); }

// The doorbells that host functions notify, by their address. A host function may run after the loop has gone, and on a
// failed device it never runs: so it gets the address, and holds nothing.
struct known_doorbells {
  std::mutex mutex;
  std::map<const void*, std::weak_ptr<const doorbell_handle>> all;

  static known_doorbells& instance() {
    static auto* const known = new known_doorbells;  // never destroyed: host functions may run at exit
    return *known;
  }
  void add(const held_doorbell& b) {
    const std::lock_guard lock(mutex);
    std::weak_ptr<const doorbell_handle>& place = all[b.get()];
    if (place.lock() == b) return;
    place = b;
    std::erase_if(all, [](const auto& e) { return e.second.expired(); });
  }
  static void notify(void* address) {
    known_doorbells& known = instance();
    const std::lock_guard lock(known.mutex);
    const auto found = known.all.find(address);
    if (found == known.all.end()) return;
    if (const held_doorbell b = found->second.lock()) b->notify();
  }
};

// Loads the file that TUTTI_CUDA_KERNELS names, or the kernels that are built into this library. Returns null if
// there are none, or none for this GPU.
abi::module* load_kernels(const abi::table& calls) {
  const char* const told = std::getenv("TUTTI_CUDA_KERNELS");
  std::string text;
  const void* image = nullptr;
#ifdef TUTTI_CUDA_KERNELS_FILE
  image = tutti_cuda_kernels_begin;
#endif
  if (told != nullptr && *told != '\0') {
    std::ostringstream file;
    file << std::ifstream(told, std::ios::binary).rdbuf();
    text = std::move(file).str();
    image = text.c_str();
  }
  abi::module* loaded = nullptr;
  return image != nullptr && calls.module_load(&loaded, image) == abi::success ? loaded : nullptr;
}

// Makes a context current for its lifetime, whatever the thread had.
class in_context {
 public:
  in_context(const abi::table& calls, abi::context* wanted) noexcept
      : calls_(calls), entered_(calls.push(wanted) == abi::success) {}
  in_context(const in_context&) = delete;
  in_context& operator=(const in_context&) = delete;
  ~in_context() {
    abi::context* was = nullptr;
    if (entered_) calls_.pop(&was);
  }

 private:
  const abi::table& calls_;
  bool entered_;
};

// Lets calls of this thread be no part of captures for its lifetime: asking whether work is done would end one of
// this thread, or one in the global mode.
class outside_captures {
 public:
  explicit outside_captures(const abi::table& calls) noexcept : calls_(calls) { calls_.capture_mode(&mode_); }
  outside_captures(const outside_captures&) = delete;
  outside_captures& operator=(const outside_captures&) = delete;
  ~outside_captures() { calls_.capture_mode(&mode_); }

 private:
  const abi::table& calls_;
  int mode_ = abi::capture_mode_relaxed;  // then the thread's own
};

// The driver of one GPU, in its primary context; it has the kernels, and the thread that frees memory. Shared by all
// loops of the process.
//
// cuMemFree waits for the device, which no loop may do. It holds a lock of the driver meanwhile, and a loop that
// waits for that lock opens no gate and sends nothing to other ranks. So nothing is freed while a gate is closed
// or work waits for other ranks.
class cuda_driver final : public driver, process_sharing {
 public:
  static constexpr const char *vendor_name = "CUDA", *namespace_name = "cuda";

  cuda_driver(const abi::table& c, int n) : driver(n), calls(c) {
    name_ = fmt::format("cuda device {}", ordinal_);
    check(calls.device_get(&device_, ordinal_), "cuDeviceGet");
    char text[256] = {};
    check(calls.device_name(text, sizeof text, device_), "cuDeviceGetName");
    name_ += fmt::format(" ({})", text);
    abi::uuid id{};
    calls.device_uuid(&id, device_);
    identity_ = fmt::format("cuda-{:02x}", fmt::join(id.bytes, ""));
    const auto attribute = [this](int which) {
      int value = 0;
      calls.device_attribute(&value, which, device_);
      return value;
    };
    multiprocessors_ = std::max(1, attribute(abi::attribute_multiprocessors));
    can_.timeline = can_.gate = attribute(abi::attribute_can_use_64_bit_stream_mem_ops) != 0;
    can_.host_call = true;
    can_.processes_at_once = attribute(abi::attribute_mps_enabled) != 0;
    check(calls.retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    const in_context here = enter();
    // GPUs too old for the kernels have none: their collectives are staged.
    module_ = load_kernels(calls);
    can_.kernels = module_ != nullptr;
    // What is looked up under a closed gate does not run until that is open.
    if (module_ != nullptr)
      for (const gpu::kernels::kernel& k : gpu::kernels::all_kernels())
        if (abi::function* found = nullptr; calls.module_function(&found, module_, k.name) == abi::success)
          functions_.emplace(&k, found);
    // A new stream may need a hardware queue: making one waits for the device, under a closed gate for ever.
    for (const bool urgent : {false, true})
      for (std::size_t i = 0; i < streams_in_stock; ++i) {
        abi::stream* made = nullptr;
        if (create_stream(&made, urgent) == abi::success) give_back(made);
      }
  }
  ~cuda_driver() override {
    words_.free_pages(*this);
    reaper_.join();
    {
      const in_context here = enter();
      for (const auto& [stream, side] : sides_) give_back(side.stream);
      for (const auto& all : spare_streams_)
        for (abi::stream* s : all) calls.stream_destroy(s);
      if (module_ != nullptr) calls.module_unload(module_);
    }
    calls.release(device_);
  }
  in_context enter() const noexcept { return {calls, context_}; }

  // ---- memory ----

  memory_info describe(const void* memory) const noexcept override {
    const in_context here = enter();
    unsigned type = 0, managed = 0;
    memory_info found;
    void* base = nullptr;
    int wanted[] = {abi::pointer_memory_type, abi::pointer_is_managed, abi::pointer_device_ordinal,
                    abi::pointer_range_start, abi::pointer_range_size};
    void* values[] = {&type, &managed, &found.device, &base, &found.bytes};
    if (calls.pointer_attributes(5, wanted, values, address(memory)) != abi::success || type == 0)
      return memory_info();
    found.kind = managed != 0                      ? memory_kind::managed
                 : type == abi::memory_type_device ? memory_kind::device
                 : type == abi::memory_type_host   ? memory_kind::pinned
                                                   : memory_kind::unknown;
    found.base = base;
    return found;
  }
  void* allocate(std::size_t bytes, memory_kind kind) override {
    if (kind == memory_kind::pinned) {
      void* memory = nullptr;
      allocate("cuMemHostAlloc", bytes, [&] {
        return try_call(calls.host_alloc, &memory, bytes, abi::host_portable | abi::host_device_map);
      });
      return memory;
    }
    abi::device_pointer memory = 0;
    allocate("cuMemAlloc", bytes, [&] { return try_call(calls.alloc, &memory, bytes); });
    return reinterpret_cast<void*>(memory);
  }
  void free(void* memory, memory_kind kind) noexcept override {
    free_by(describe(memory).bytes, [this, memory, kind] {
      kind == memory_kind::pinned ? calls.host_free(memory) : calls.free(address(memory));
    });
  }
  void free_by(std::size_t bytes, std::function<void()> f) noexcept override {
    begin_to_wait();
    waiting_bytes_.fetch_add(bytes);
    boost::asio::post(reaper_, [this, bytes, f = std::move(f)] {
      const in_context here = enter();
      // In this mode, freeing does not break a capture on another thread.
      int mode = abi::capture_mode_relaxed;
      calls.capture_mode(&mode);
      std::unique_lock lock(frees_mutex_);
      frees_changed_.wait(lock, [this] { return may_free(); });
      f();
      waiting_bytes_.fetch_sub(bytes);
      waiting_.fetch_sub(1);
      frees_changed_.notify_all();
    });
  }
  bool pin(void* memory, std::size_t bytes) noexcept override {
    return try_call(calls.host_register, memory, bytes, abi::host_portable | abi::host_device_map) ==
           abi::success;
  }
  void unpin(void* memory) noexcept override { try_call(calls.host_unregister, memory); }
  void hold_frees(bool on) noexcept override {
    const std::lock_guard lock(frees_mutex_);
    holds_ += on ? 1 : -1;
    frees_changed_.notify_all();
  }
  bool close_gate() noexcept override {
    std::unique_lock lock(frees_mutex_);
    if (!frees_changed_.wait_for(lock, longest_wait_for_long_free, [this] { return long_frees_ == 0; }))
      return false;
    ++gates_;
    frees_changed_.notify_all();
    return true;
  }
  void open_gate() noexcept override {
    const std::lock_guard lock(frees_mutex_);
    --gates_;
    frees_changed_.notify_all();
  }
  void free_long(const std::function<void()>& f, std::chrono::milliseconds patience) override {
    begin_to_wait();
    {
      std::unique_lock lock(frees_mutex_);
      frees_changed_.wait_for(lock, patience, [this] { return may_free(); });
      frees_changed_.wait(lock, [this] { return gates_ == 0; });
      ++long_frees_;
      long_free_since_ = clock::now();
    }
    waiting_.fetch_sub(1);
    f();
    const std::lock_guard lock(frees_mutex_);
    --long_frees_;
    frees_changed_.notify_all();
  }
  // Operations that started one after the other without a pause would never let anything be freed. The moments grow
  // with the time that memory has waited, so that work that takes long ends in one of them.
  bool frees_first() const noexcept override {
    constexpr auto shortest = std::chrono::milliseconds(20);
    if (long_frees_ > 0 && clock::now() - long_free_since_.load() < longest_wait_for_long_free) return true;
    if (waiting_ == 0 || gates_ > 0) return false;
    const clock::duration waited = clock::now() - waiting_since_.load();
    const auto times = std::clamp<clock::rep>(waited / shortest, 0, 64);
    const auto period = shortest * std::bit_floor(static_cast<std::uint64_t>(times));
    return times > 0 && waited % period < period / 5;
  }

  // ---- streams, events and words ----

  void* make_stream(bool urgent) override {
    const in_context here = enter();
    abi::stream* made = take_spare(urgent);
    if (made == nullptr) check(create_stream(&made, urgent), "cuStreamCreateWithPriority");
    return made;
  }
  // It still does its work.
  void destroy_stream(void* stream) noexcept override {
    const std::lock_guard lock(sides_mutex_);
    const auto [from, to] = sides_.equal_range(stream);
    for (auto side = from; side != to; ++side) give_back(side->second.stream);
    sides_.erase(from, to);
    give_back(stream_of(stream));
  }
  void* make_event() override {
    abi::event* made = nullptr;
    call("cuEventCreate", calls.event_create, &made, abi::event_disable_timing);
    return made;
  }
  void destroy_event(void* event) noexcept override { try_call(calls.event_destroy, event_of(event)); }
  word make_word() override { return word{words_.take(*this), nullptr}; }
  void destroy_word(word w) noexcept override { words_.give_back(w.value); }

  // ---- work ----

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    call("cuMemcpyAsync", calls.copy, address(to), address(from), bytes, stream_of(stream));
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    call("cuMemsetD8Async", calls.fill, address(to), std::to_integer<unsigned char>(value), bytes,
         stream_of(stream));
  }
  void record(void* event, void* stream) override {
    call("cuEventRecord", calls.event_record, event_of(event), stream_of(stream));
  }
  void wait(void* stream, void* event) override {
    call("cuStreamWaitEvent", calls.stream_wait, stream_of(stream), event_of(event), 0U);
  }
  bool can_wait_for(const driver& other) const noexcept override {
    return dynamic_cast<const cuda_driver*>(&other) != nullptr;
  }
  void write(void* stream, const word& w, std::uint64_t value) override {
    call("cuStreamWriteValue64", calls.write_value, stream_of(stream), address(w.value), value, 0U);
  }
  void wait(void* stream, const word& w, std::uint64_t at_least) override {
    call("cuStreamWaitValue64", calls.wait_value, stream_of(stream), address(w.value), at_least,
         abi::wait_value_geq);
  }
  // One thread per 16 bytes, but at most 8 blocks per multiprocessor.
  bool launch(const gpu::kernels::kernel* kernel, const gpu::kernels::arguments& what,
              void* stream) override {
    using gpu::kernels::bytes_of;
    const in_context here = enter();
    const auto found = functions_.find(kernel);
    if (found == functions_.end()) return false;
    const std::size_t bytes = what.count * std::min(bytes_of(kernel->from), bytes_of(kernel->to));
    const std::size_t threads = (bytes + 15) / 16;
    const std::size_t most = static_cast<std::size_t>(multiprocessors_) * 8;
    const std::size_t blocks =
        std::clamp<std::size_t>((threads + threads_per_block - 1) / threads_per_block, 1, most);
    gpu::kernels::arguments copied = what;  // CUDA takes no const
    void* parameters[] = {&copied};
    launch(found->second, static_cast<unsigned>(blocks), threads_per_block, parameters, stream);
    return true;
  }
  void launch(void* kernel, unsigned blocks, unsigned threads, void** arguments, void* stream) {
    call("cuLaunchKernel", calls.launch, static_cast<abi::function*>(kernel), blocks, 1U, 1U, threads, 1U, 1U,
         0U, stream_of(stream), arguments, nullptr);
  }

  // ---- the host ----

  bool query(void* event) override {
    const outside_captures asks(calls);
    const abi::result code = try_call(calls.event_query, event_of(event));
    if (lost(code)) throw error(errc::device_failed, "cuEventQuery: " + calls.explain(code));
    return code == abi::success;
  }
  std::optional<std::string> loss(void* stream) override {
    // The capture would end. A lost device ends it, too, and is found after it.
    if (capturing(stream)) return std::nullopt;
    const outside_captures asks(calls);
    const abi::result code = try_call(calls.stream_query, stream_of(stream));
    return lost(code) ? std::optional("cuStreamQuery: " + calls.explain(code)) : std::nullopt;
  }
  bool capturing(void* stream) noexcept override {
    int status = abi::capture_none;
    return try_call(calls.stream_capturing, stream_of(stream), &status) == abi::success &&
           status != abi::capture_none;
  }
  bool arm(void* event, void* stream, const held_doorbell& b) override {
    const in_context here = enter();
    abi::stream* const side = side_of(stream, b);
    return side != nullptr && calls.stream_wait(side, event_of(event), 0) == abi::success &&
           calls.call_host(side, &known_doorbells::notify, const_cast<doorbell_handle*>(b.get())) ==
               abi::success;
  }
  void enter_thread() noexcept override {
    // The program may capture a graph on another thread meanwhile.
    int mode = abi::capture_mode_relaxed;
    calls.push(context_);
    calls.capture_mode(&mode);
  }

  // ---- other processes, by CUDA IPC ----

  process_sharing* sharing() noexcept override { return this; }

  const abi::table& calls;

 private:
  // A stream behind a stream, which notifies that one's loop.
  struct side_stream {
    abi::stream* stream;
    std::weak_ptr<const doorbell_handle> of;
  };

  shared_name name_memory(void* start) override {
    abi::ipc_memory h{};
    call("cuIpcGetMemHandle", calls.ipc_name_memory, &h, address(start));
    return shared_name(h);
  }
  void* open_memory(const shared_name& of) override {
    abi::device_pointer opened = 0;
    call("cuIpcOpenMemHandle", calls.ipc_open_memory, &opened, of.as<abi::ipc_memory>(),
         abi::ipc_lazy_peer_access);
    return reinterpret_cast<void*>(opened);
  }
  void close_memory(void* opened) noexcept override { try_call(calls.ipc_close_memory, address(opened)); }
  bool has_events() const noexcept override { return true; }
  void* make_shared_event(shared_name& name) override {
    const in_context here = enter();
    abi::event* made = nullptr;
    check(calls.event_create(&made, abi::event_disable_timing | abi::event_interprocess), "cuEventCreate");
    abi::ipc_event h{};
    if (const abi::result code = calls.ipc_name_event(&h, made); code != abi::success) {
      calls.event_destroy(made);
      check(code, "cuIpcGetEventHandle");
    }
    name = shared_name(h);
    return made;
  }
  void* open_event(const shared_name& of) override {
    abi::event* opened = nullptr;
    call("cuIpcOpenEventHandle", calls.ipc_open_event, &opened, of.as<abi::ipc_event>());
    return opened;
  }

  void check(abi::result code, const char* what) const {
    if (code == abi::success) return;
    errc as = errc::system;
    std::string cure;
    if (lost(code)) as = errc::device_failed;
    if (code == abi::error_out_of_memory) as = errc::resources;
    if (code == abi::error_invalid_value || code == abi::error_invalid_handle) as = errc::invalid_argument;
    if (code == abi::error_not_supported || code == abi::error_not_permitted) as = errc::not_supported;
    if (code >= 900 && code <= 908) {
      as = errc::invalid_argument;
      cure =
          " (a stream is being captured into a graph; cudaStreamCaptureModeRelaxed leaves other threads and "
          "streams alone)";
    }
    throw error(as, fmt::format("{}: {}: {}{}", name_, what, calls.explain(code), cure));
  }
  // Makes a call in the context.
  template <class... P, class... A>
  abi::result try_call(abi::result (*f)(P...), A... arguments) const noexcept {
    const in_context here = enter();
    return f(arguments...);
  }
  // The same, and checks it.
  template <class... P, class... A>
  void call(const char* what, abi::result (*f)(P...), A... arguments) const {
    check(try_call(f, arguments...), what);
  }

  // ---- frees ----

  // Requires frees_mutex_. Gates open at the end of their loop at the latest.
  bool may_free() const noexcept { return holds_ == 0 && gates_ == 0; }
  void begin_to_wait() noexcept {
    if (waiting_.fetch_add(1) == 0) waiting_since_.store(clock::now());
  }
  // Calls f, which allocates. If there is no room, it waits for what the program has dropped, and calls f again.
  template <class F>
  void allocate(const char* what, std::size_t bytes, const F& f) {
    abi::result code = f();
    if (code == abi::error_out_of_memory) {
      std::unique_lock lock(frees_mutex_);
      frees_changed_.wait_for(lock, longest_wait_for_frees,
                              [this] { return !may_free() || waiting_bytes_.load() == 0; });
      lock.unlock();
      code = f();
    }
    const std::size_t waiting = waiting_bytes_.load();
    if (code == abi::error_out_of_memory && waiting > 0)
      throw error(
          errc::resources,
          fmt::format("{}: {} of {} bytes: {}; {} bytes that were dropped are not freed before {}: await "
                      "that first",
                      name_, what, bytes, calls.explain(code), waiting,
                      gates_.load() > 0 ? "all gates of the device are open"
                                        : "NCCL's work, which waits for other ranks, is done"));
    check(code, what);
  }

  abi::result create_stream(abi::stream** made, bool urgent) {
    int least = 0, greatest = 0;
    calls.priorities(&least, &greatest);
    const abi::result code = calls.stream_create(made, abi::stream_non_blocking, urgent ? greatest : least);
    const std::lock_guard lock(mutex_);
    if (code == abi::success) is_urgent_[*made] = urgent;
    return code;
  }
  // Returns null if there is none.
  abi::stream* take_spare(bool urgent) {
    const std::lock_guard lock(mutex_);
    std::vector<abi::stream*>& spare = spare_streams_[urgent ? 1 : 0];
    if (spare.empty()) return nullptr;
    abi::stream* const taken = spare.back();
    spare.pop_back();
    return taken;
  }
  void give_back(abi::stream* s) {
    const std::lock_guard lock(mutex_);
    spare_streams_[is_urgent_.at(s) ? 1 : 0].push_back(s);
  }
  // Each stream has its own side stream: a late event of one stream must not delay the doorbell of another. Returns
  // null if there is none left for this loop.
  abi::stream* side_of(void* stream, const held_doorbell& b) {
    const std::lock_guard lock(sides_mutex_);
    const auto [from, to] = sides_.equal_range(stream);
    const auto known = std::find_if(from, to, [&b](const auto& e) { return e.second.of.lock() == b; });
    if (known != to) return known->second.stream;
    // Streams of the program may have outlived their loop.
    std::erase_if(sides_, [this](const auto& e) {
      const bool over = e.second.of.expired();
      if (over) give_back(e.second.stream);
      return over;
    });
    if (std::ranges::count_if(sides_, [&b](const auto& e) { return e.second.of.lock() == b; }) >= most_sides)
      return nullptr;
    abi::stream* const side = take_spare(false);
    if (side != nullptr) {
      known_doorbells::instance().add(b);
      sides_.emplace(stream, side_stream{side, b});
    }
    return side;
  }

  abi::device device_ = 0;
  abi::context* context_ = nullptr;
  int multiprocessors_ = 1;
  abi::module* module_ = nullptr;
  std::map<const gpu::kernels::kernel*, abi::function*> functions_;
  word_pool words_;
  std::mutex mutex_;
  std::vector<abi::stream*> spare_streams_[2];  // by priority: usual, urgent
  std::map<abi::stream*, bool> is_urgent_;      // of all streams
  std::mutex sides_mutex_;
  std::multimap<void*, side_stream> sides_;  // by stream, one for each loop that waits for it
  std::mutex frees_mutex_;                   // held while memory is freed
  std::condition_variable frees_changed_;
  int holds_ = 0;
  // Written under the mutex.
  std::atomic<int> gates_{0};       // closed
  std::atomic<int> long_frees_{0};  // in progress
  std::atomic<clock::time_point> long_free_since_{};
  // What waits to be freed: its number, its bytes, and since when there has been any.
  std::atomic<int> waiting_{0};
  std::atomic<std::size_t> waiting_bytes_{0};
  std::atomic<clock::time_point> waiting_since_{};
  boost::asio::thread_pool reaper_{1};
};

}  // namespace

int device_count() noexcept { return abi::load().devices(); }
std::string why_not() { return abi::load().why; }

std::shared_ptr<driver> driver_at(int ordinal) { return driver_for<cuda_driver>(abi::load(), ordinal); }
gpu::device open(const communicator& of, int ordinal) { return open_once(of, driver_at(ordinal)); }
gpu::device open(runtime& rt, int ordinal) { return open_once(rt, driver_at(ordinal)); }

bool is_cuda(const gpu::device& on) noexcept {
  return on && dynamic_cast<cuda_driver*>(&on.state().driver()) != nullptr;
}

const gpu::device& stream::checked(const gpu::device& on) {
  static_cast<void>(driver_of<cuda_driver>(on, "a CUDA stream"));
  return on;
}

// ---- kernels of the program ----

struct module::loaded {
  const std::shared_ptr<cuda_driver> of;
  abi::module* const handle;
  ~loaded() {
    const in_context here = of->enter();
    of->calls.module_unload(handle);
  }
};

module::module(const gpu::device& on, const void* image) {
  const auto of = driver_of<cuda_driver>(on, "cuda::module");
  const in_context here = of->enter();
  abi::module* handle = nullptr;
  const abi::result code =
      image == nullptr ? abi::error_invalid_value : of->calls.module_load(&handle, image);
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("cuda::module on {}: {}", on.name(), of->calls.explain(code)));
  state_.reset(new loaded{of, handle});
}

void* module::kernel(const char* name) const {
  const cuda_driver& of = *state_->of;
  const in_context here = of.enter();
  abi::function* found = nullptr;
  const abi::result code = of.calls.module_function(&found, state_->handle, name);
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("cuda::module: the kernel {}: {}", name, of.calls.explain(code)));
  return found;
}

void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments) {
  const auto by = driver_of<cuda_driver>(in.on(), "cuda::launch");
  by->launch(kernel, size.blocks, size.threads, arguments, in.native());
}

}  // namespace tutti::cuda
