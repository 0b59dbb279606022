// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include "kernels/elements.hpp"
#include "kernels/host_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <tutti/error.hpp>
#include <utility>
#include <vector>

namespace tutti::cuda {
namespace {

using gpu::memory_info;
using gpu::memory_kind;
using gpu::detail::progress;
using gpu::detail::word;

// Each side stream takes one of the few hardware queues.
constexpr std::size_t most_sides = 4;
constexpr std::size_t words_per_page = 64;
constexpr std::size_t bytes_per_word = 64;
constexpr unsigned threads_per_block = 256;
// Of each priority, for all loops of the process.
constexpr std::size_t streams_in_stock = 24;

// Errors after which no call in the context succeeds.
bool lost(abi::result code) noexcept {
  return code == 4 || code == 46 || code == 214 || code == 220 || code == 226 || code == 700 || code == 702 ||
         code == 709 || code == 710 || (code >= 714 && code <= 719) || code == 721 || code == 810 ||
         code == abi::error_unknown;
}

abi::device_pointer address(const void* p) noexcept { return reinterpret_cast<abi::device_pointer>(p); }
abi::stream* stream_of(void* s) noexcept { return static_cast<abi::stream*>(s); }
abi::event* event_of(void* e) noexcept { return static_cast<abi::event*>(e); }

using held_doorbell = std::shared_ptr<const gpu::detail::doorbell_handle>;

// Doorbells passed to host functions. A failed device never calls those: the list keeps what they hold.
class given_doorbells {
 public:
  static given_doorbells& instance() {
    static auto* const all = new given_doorbells;  // never destroyed: host functions may run at exit
    return *all;
  }
  held_doorbell* take(const held_doorbell& b) {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) {
      spare_.reserve(all_.size() + 1);
      spare_.push_back(&all_.emplace_back());
    }
    held_doorbell* const taken = spare_.back();
    spare_.pop_back();
    *taken = b;
    return taken;
  }
  held_doorbell give_back(held_doorbell* b) noexcept {
    const std::lock_guard lock(mutex_);
    spare_.push_back(b);
    return std::move(*b);
  }

 private:
  std::mutex mutex_;
  std::deque<held_doorbell> all_;
  std::vector<held_doorbell*> spare_;  // has room for all: give_back() does not allocate
};

}  // namespace

// ---- shared_context ----

shared_context::shared_context(const abi::table& c, int n) : calls(c), ordinal(n) {
  const auto check = [this](abi::result code, const char* what) {
    if (code != abi::success)
      throw error(errc::device_failed,
                  fmt::format("cuda device {}: {}: {}", ordinal, what, calls.explain(code)));
  };
  check(calls.device_get(&device, ordinal), "cuDeviceGet");
  char text[256] = {};
  check(calls.device_name(text, sizeof text, device), "cuDeviceGetName");
  name = text;
  abi::uuid id{};
  if (calls.device_uuid(&id, device) == abi::success)
    for (const char b : id.bytes) identity += fmt::format("{:02x}", static_cast<unsigned char>(b));
  identity = "cuda-" + identity;
  int memory_ops = 0;
  calls.device_attribute(&memory_ops, abi::attribute_can_use_64_bit_stream_mem_ops, device);
  calls.device_attribute(&multiprocessors, abi::attribute_multiprocessors, device);
  words = memory_ops != 0 && calls.write_value != nullptr && calls.wait_value != nullptr;
  int by_service = 0;
  calls.device_attribute(&by_service, abi::attribute_mps_enabled, device);
  processes_at_once = by_service != 0;
  check(calls.retain(&context, device), "cuDevicePrimaryCtxRetain");
  const in_context here(*this);
  // GPUs too old for the kernels have none: their collectives are staged.
  if (const void* const image = find_kernel_image(); image != nullptr)
    if (calls.module_load(&module_, image) != abi::success) module_ = nullptr;
  // A new stream may need a hardware queue. To make one waits for the device, which a closed gate would make
  // endless.
  for (const bool urgent : {false, true})
    for (std::size_t i = 0; i < streams_in_stock; ++i) {
      abi::stream* made = nullptr;
      if (create_stream(&made, urgent) == abi::success) spare_streams_[urgent ? 1 : 0].push_back(made);
    }
}

abi::result shared_context::create_stream(abi::stream** made, bool urgent) {
  int least = 0, greatest = 0;
  calls.priorities(&least, &greatest);
  return calls.stream_create(made, abi::stream_non_blocking, urgent ? greatest : least);
}

abi::result shared_context::take_stream(abi::stream** taken, bool urgent) {
  const std::lock_guard lock(mutex_);
  std::vector<abi::stream*>& spare = spare_streams_[urgent ? 1 : 0];
  abi::result code = abi::success;
  if (spare.empty()) {
    code = create_stream(taken, urgent);
  } else {
    *taken = spare.back();
    spare.pop_back();
  }
  if (code == abi::success) taken_streams_[*taken] = urgent;
  return code;
}
void shared_context::give_back(abi::stream* s) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_streams_.find(s);
  spare_streams_[found->second ? 1 : 0].push_back(s);
  taken_streams_.erase(found);
}

shared_context::~shared_context() {
  reaper_.join();
  {
    const in_context here(*this);
    for (const auto& all : spare_streams_)
      for (abi::stream* s : all) calls.stream_destroy(s);
    if (module_ != nullptr) calls.module_unload(module_);
  }
  calls.release(device);
}

abi::function* shared_context::kernel(const char* wanted) {
  if (module_ == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = functions_.try_emplace(wanted, nullptr);
  if (is_new && calls.module_function(&place->second, module_, wanted) != abi::success)
    place->second = nullptr;
  return place->second;
}

void shared_context::free_later(void* memory, memory_kind kind) noexcept {
  boost::asio::post(reaper_, [this, memory, kind] {
    const in_context here(*this);
    // In this mode, freeing does not break a capture on another thread.
    int mode = abi::capture_mode_relaxed;
    calls.capture_mode(&mode);
    std::unique_lock lock(frees_mutex_);
    may_free_.wait(lock,
                   [this] { return holds_ == 0; });  // gates open at the end of their loop at the latest
    kind == memory_kind::pinned ? calls.host_free(memory) : calls.free(address(memory));
  });
}

void shared_context::hold_frees(bool on) noexcept {
  const std::lock_guard lock(frees_mutex_);
  holds_ += on ? 1 : -1;
  if (holds_ == 0) may_free_.notify_one();
}

// ---- cuda_driver ----

cuda_driver::cuda_driver(std::shared_ptr<shared_context> on) : on_(std::move(on)), calls_(on_->calls) {}

cuda_driver::~cuda_driver() {
  const in_context here(*on_);
  for (const auto& [stream, side] : sides_) on_->give_back(side);
  for (void* page : word_pages_) on_->free_later(page, memory_kind::pinned);
}

void cuda_driver::check(abi::result code, const char* what) const {
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
  throw error(as, fmt::format("{}: {}: {}{}", name(), what, calls_.explain(code), cure));
}

progress cuda_driver::judge(abi::result code, const char* what, std::string& why) const noexcept {
  if (code == abi::success) return progress::done;
  if (!lost(code)) return progress::pending;
  why = fmt::format("{}: {}", what, calls_.explain(code));
  return progress::failed;
}

std::string cuda_driver::name() const { return fmt::format("cuda device {} ({})", on_->ordinal, on_->name); }

gpu::capabilities cuda_driver::can() const noexcept {
  gpu::capabilities c;
  c.timeline = c.gate = on_->words;
  c.host_call = true;
  c.processes_at_once = on_->processes_at_once;
  c.kernels = on_->has_kernels();
  return c;
}

memory_info cuda_driver::describe(const void* memory) const noexcept {
  const in_context here(*on_);
  unsigned type = 0, managed = 0;
  int ordinal = -1;
  void* start = nullptr;
  std::size_t size = 0;
  unsigned long long id = 0;
  unsigned legacy = 0;
  int wanted[] = {abi::pointer_memory_type,  abi::pointer_is_managed, abi::pointer_device_ordinal,
                  abi::pointer_range_start,  abi::pointer_range_size, abi::pointer_buffer_id,
                  abi::pointer_is_legacy_ipc};
  void* values[] = {&type, &managed, &ordinal, &start, &size, &id, &legacy};
  memory_info found;
  if (calls_.pointer_attributes(7, wanted, values, address(memory)) != abi::success || type == 0)
    return found;
  found.kind = managed != 0                      ? memory_kind::managed
               : type == abi::memory_type_device ? memory_kind::device
               : type == abi::memory_type_host   ? memory_kind::pinned
                                                 : memory_kind::unknown;
  found.device = ordinal;
  found.base = start;
  found.bytes = size;
  found.id = id;
  found.shareable = found.kind == memory_kind::device && legacy != 0;
  return found;
}

void* cuda_driver::allocate(std::size_t bytes, memory_kind kind) {
  if (kind == memory_kind::pinned) {
    void* memory = nullptr;
    call("cuMemHostAlloc", calls_.host_alloc, &memory, bytes, abi::host_portable | abi::host_device_map);
    return memory;
  }
  abi::device_pointer memory = 0;
  call("cuMemAlloc", calls_.alloc, &memory, bytes);
  return reinterpret_cast<void*>(memory);
}
void cuda_driver::free(void* memory, memory_kind kind) noexcept { on_->free_later(memory, kind); }

bool cuda_driver::pin(void* memory, std::size_t bytes) noexcept {
  const in_context here(*on_);
  return calls_.host_register(memory, bytes, abi::host_portable | abi::host_device_map) == abi::success;
}
void cuda_driver::unpin(void* memory) noexcept {
  const in_context here(*on_);
  calls_.host_unregister(memory);
}

void* cuda_driver::make_stream(bool urgent) {
  const in_context here(*on_);
  abi::stream* made = nullptr;
  check(on_->take_stream(&made, urgent), "cuStreamCreateWithPriority");
  return made;
}
void cuda_driver::destroy_stream(void* stream) noexcept {
  if (const auto side = sides_.find(stream); side != sides_.end()) {
    on_->give_back(side->second);
    sides_.erase(side);
  }
  on_->give_back(stream_of(stream));
}
void* cuda_driver::make_event() {
  abi::event* made = nullptr;
  call("cuEventCreate", calls_.event_create, &made, abi::event_disable_timing);
  return made;
}
void cuda_driver::destroy_event(void* event) noexcept {
  const in_context here(*on_);
  calls_.event_destroy(event_of(event));
}

word cuda_driver::make_word() {
  const std::lock_guard lock(words_mutex_);
  if (spare_words_.empty()) {
    void* const page = allocate(words_per_page * bytes_per_word, memory_kind::pinned);
    word_pages_.push_back(page);
    abi::device_pointer seen = 0;
    call("cuMemHostGetDevicePointer", calls_.host_pointer, &seen, page, 0U);
    for (std::size_t i = 0; i < words_per_page; ++i) {
      // A cache line for each word: the device writes one while the host polls another.
      auto* const value =
          new (static_cast<std::byte*>(page) + i * bytes_per_word) std::atomic<std::uint64_t>(0);
      spare_words_.push_back(word{value, reinterpret_cast<void*>(seen + i * bytes_per_word)});
    }
  }
  const word w = spare_words_.back();
  spare_words_.pop_back();
  w.value->store(0, std::memory_order_release);
  return w;
}
void cuda_driver::destroy_word(word w) noexcept {
  const std::lock_guard lock(words_mutex_);
  spare_words_.push_back(w);
}

void cuda_driver::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  call("cuMemcpyAsync", calls_.copy, address(to), address(from), bytes, stream_of(stream));
}
void cuda_driver::fill(void* to, std::byte value, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  call("cuMemsetD8Async", calls_.fill, address(to), std::to_integer<unsigned char>(value), bytes,
       stream_of(stream));
}
void cuda_driver::record(void* event, void* stream) {
  call("cuEventRecord", calls_.event_record, event_of(event), stream_of(stream));
}
void cuda_driver::wait(void* stream, void* event) {
  call("cuStreamWaitEvent", calls_.stream_wait, stream_of(stream), event_of(event), 0U);
}
void cuda_driver::write(void* stream, const word& w, std::uint64_t value) {
  call("cuStreamWriteValue64", calls_.write_value, stream_of(stream), address(w.handle), value, 0U);
}
void cuda_driver::wait(void* stream, const word& w, std::uint64_t at_least) {
  call("cuStreamWaitValue64", calls_.wait_value, stream_of(stream), address(w.handle), at_least,
       abi::wait_value_geq);
}

template <class Kernel, class Arguments>
bool cuda_driver::launch(const Kernel* kernel, Arguments what, std::size_t element_bytes, void* stream) {
  const in_context here(*on_);
  abi::function* const found = kernel == nullptr ? nullptr : on_->kernel(kernel->name);
  if (found == nullptr) return false;
  const std::size_t threads = (what.count * element_bytes + 15) / 16;
  const std::size_t most = static_cast<std::size_t>(on_->multiprocessors) * 8;
  const std::size_t blocks =
      std::clamp<std::size_t>((threads + threads_per_block - 1) / threads_per_block, 1, most);
  void* parameters[] = {&what};
  launch(found, static_cast<unsigned>(blocks), threads_per_block, parameters, stream);
  return true;
}

bool cuda_driver::reduce(reduce_kind kind, element_type type, const gpu::kernels::reduce_arguments& what,
                         void* stream) {
  return launch(gpu::kernels::find_reduction(kind, type), what, gpu::kernels::bytes_of(type), stream);
}
bool cuda_driver::convert(element_type from, element_type to, const gpu::kernels::convert_arguments& what,
                          void* stream) {
  return launch(gpu::kernels::find_conversion(from, to), what,
                std::min(gpu::kernels::bytes_of(from), gpu::kernels::bytes_of(to)), stream);
}

void cuda_driver::launch(void* kernel, unsigned blocks, unsigned threads, void** arguments, void* stream) {
  call("cuLaunchKernel", calls_.launch, static_cast<abi::function*>(kernel), blocks, 1U, 1U, threads, 1U, 1U,
       0U, stream_of(stream), arguments, nullptr);
}

progress cuda_driver::query(void* event, std::string& why) noexcept {
  const in_context here(*on_);
  return judge(calls_.event_query(event_of(event)), "cuEventQuery", why);
}
progress cuda_driver::health(void* stream, std::string& why) noexcept {
  const in_context here(*on_);
  const progress seen = judge(calls_.stream_query(stream_of(stream)), "cuStreamQuery", why);
  return seen == progress::failed ? seen : progress::pending;
}
bool cuda_driver::capturing(void* stream) noexcept {
  const in_context here(*on_);
  int status = abi::capture_none;
  return calls_.stream_capturing(stream_of(stream), &status) == abi::success && status != abi::capture_none;
}

bool cuda_driver::arm(void* event, void* stream,
                      const std::shared_ptr<const gpu::detail::doorbell_handle>& b) {
  const in_context here(*on_);
  // Each stream has its own side stream: a late event of one stream must not delay the doorbell of another.
  auto side = sides_.find(stream);
  if (side == sides_.end()) {
    if (sides_.size() >= most_sides) return false;
    side = sides_.emplace(stream, nullptr).first;
    if (on_->take_stream(&side->second, false) != abi::success) {
      sides_.erase(side);
      return false;
    }
  }
  if (calls_.stream_wait(side->second, event_of(event), 0) != abi::success) return false;
  held_doorbell* const held = given_doorbells::instance().take(b);
  const auto ring = [](void* p) {
    given_doorbells::instance().give_back(static_cast<held_doorbell*>(p))->notify();
  };
  if (calls_.call_host(side->second, ring, held) == abi::success) return true;
  given_doorbells::instance().give_back(held);
  return false;
}

void cuda_driver::enter_thread() noexcept {
  // The program may capture a graph on another thread meanwhile.
  int mode = abi::capture_mode_relaxed;
  calls_.push(on_->context);
  calls_.capture_mode(&mode);
}

bool cuda_driver::synchronize(void* stream, std::chrono::milliseconds longest) noexcept {
  const in_context here(*on_);
  const auto until = std::chrono::steady_clock::now() + longest;
  for (;;) {
    const abi::result code = calls_.stream_query(stream_of(stream));
    if (code == abi::success) return true;
    if (code != abi::error_not_ready || std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace tutti::cuda
