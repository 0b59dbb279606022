// SPDX-License-Identifier: Apache-2.0
// CUDA: the driver of a GPU, and the public functions.
#include <tutti/cuda.hpp>

#include "cuda/context.hpp"
#include "device/open_once.hpp"
#include "kernels/elements.hpp"
#include "kernels/host_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

namespace tutti::cuda {
namespace {

using gpu::memory_info;
using gpu::memory_kind;
using gpu::detail::shared_name;
using gpu::detail::word;
using held_doorbell = std::shared_ptr<const gpu::detail::doorbell_handle>;

// Each side stream takes one of the few hardware queues.
constexpr std::size_t most_sides = 4;
constexpr unsigned threads_per_block = 256;

// Errors after which no call in the context succeeds.
bool lost(abi::result code) noexcept {
  return code == 4 || code == 46 || code == 214 || code == 220 || code == 226 || code == 700 || code == 702 ||
         code == 709 || code == 710 || (code >= 714 && code <= 719) || code == 721 || code == 810 ||
         code == abi::error_unknown;
}

abi::device_pointer address(const void* p) noexcept { return reinterpret_cast<abi::device_pointer>(p); }
abi::stream* stream_of(void* s) noexcept { return static_cast<abi::stream*>(s); }
abi::event* event_of(void* e) noexcept { return static_cast<abi::event*>(e); }

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

class cuda_driver final : public gpu::detail::driver, gpu::detail::process_sharing {
 public:
  explicit cuda_driver(std::shared_ptr<shared_context> on) : on_(std::move(on)), calls_(on_->calls) {}
  ~cuda_driver() override {
    const in_context here(*on_);
    for (const auto& [stream, side] : sides_) on_->give_back(side);
    words_.free_pages(*this);
  }
  const std::shared_ptr<shared_context>& shared() const noexcept { return on_; }

  std::string name() const override { return fmt::format("cuda device {} ({})", on_->ordinal, on_->name); }
  int ordinal() const noexcept override { return on_->ordinal; }
  std::string identity() const override { return on_->identity; }
  gpu::capabilities can() const noexcept override {
    gpu::capabilities c;
    c.timeline = c.gate = on_->words;
    c.host_call = true;
    c.processes_at_once = on_->processes_at_once;
    c.kernels = on_->has_kernels();
    return c;
  }

  // ---- memory ----

  memory_info describe(const void* memory) const noexcept override {
    const in_context here(*on_);
    unsigned type = 0, managed = 0;
    memory_info found;
    void* base = nullptr;
    int wanted[] = {abi::pointer_memory_type, abi::pointer_is_managed, abi::pointer_device_ordinal,
                    abi::pointer_range_start, abi::pointer_range_size};
    void* values[] = {&type, &managed, &found.device, &base, &found.bytes};
    if (calls_.pointer_attributes(5, wanted, values, address(memory)) != abi::success || type == 0)
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
      call("cuMemHostAlloc", calls_.host_alloc, &memory, bytes, abi::host_portable | abi::host_device_map);
      return memory;
    }
    abi::device_pointer memory = 0;
    call("cuMemAlloc", calls_.alloc, &memory, bytes);
    return reinterpret_cast<void*>(memory);
  }
  void free(void* memory, memory_kind kind) noexcept override { on_->free_later(memory, kind); }
  bool pin(void* memory, std::size_t bytes) noexcept override {
    const in_context here(*on_);
    return calls_.host_register(memory, bytes, abi::host_portable | abi::host_device_map) == abi::success;
  }
  void unpin(void* memory) noexcept override {
    const in_context here(*on_);
    calls_.host_unregister(memory);
  }
  void hold_frees(bool on) noexcept override { on_->hold_frees(on); }

  // ---- streams, events and words ----

  void* make_stream(bool urgent) override {
    const in_context here(*on_);
    abi::stream* made = nullptr;
    check(on_->take_stream(&made, urgent), "cuStreamCreateWithPriority");
    return made;
  }
  void destroy_stream(void* stream) noexcept override {
    if (const auto side = sides_.find(stream); side != sides_.end()) {
      on_->give_back(side->second);
      sides_.erase(side);
    }
    on_->give_back(stream_of(stream));
  }
  void* make_event() override {
    abi::event* made = nullptr;
    call("cuEventCreate", calls_.event_create, &made, abi::event_disable_timing);
    return made;
  }
  void destroy_event(void* event) noexcept override {
    const in_context here(*on_);
    calls_.event_destroy(event_of(event));
  }
  word make_word() override { return word{words_.take(*this), nullptr}; }
  void destroy_word(word w) noexcept override { words_.give_back(w.value); }

  // ---- work ----

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    call("cuMemcpyAsync", calls_.copy, address(to), address(from), bytes, stream_of(stream));
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override {
    if (bytes == 0) return;
    call("cuMemsetD8Async", calls_.fill, address(to), std::to_integer<unsigned char>(value), bytes,
         stream_of(stream));
  }
  void record(void* event, void* stream) override {
    call("cuEventRecord", calls_.event_record, event_of(event), stream_of(stream));
  }
  void wait(void* stream, void* event) override {
    call("cuStreamWaitEvent", calls_.stream_wait, stream_of(stream), event_of(event), 0U);
  }
  void write(void* stream, const word& w, std::uint64_t value) override {
    call("cuStreamWriteValue64", calls_.write_value, stream_of(stream), address(w.value), value, 0U);
  }
  void wait(void* stream, const word& w, std::uint64_t at_least) override {
    call("cuStreamWaitValue64", calls_.wait_value, stream_of(stream), address(w.value), at_least,
         abi::wait_value_geq);
  }
  bool reduce(reduce_kind kind, element_type type, const gpu::kernels::reduce_arguments& what,
              void* stream) override {
    return launch(gpu::kernels::find_reduction(kind, type), what, gpu::kernels::bytes_of(type), stream);
  }
  bool convert(element_type from, element_type to, const gpu::kernels::convert_arguments& what,
               void* stream) override {
    return launch(gpu::kernels::find_conversion(from, to), what,
                  std::min(gpu::kernels::bytes_of(from), gpu::kernels::bytes_of(to)), stream);
  }
  void launch(void* kernel, unsigned blocks, unsigned threads, void** arguments, void* stream) {
    call("cuLaunchKernel", calls_.launch, static_cast<abi::function*>(kernel), blocks, 1U, 1U, threads, 1U,
         1U, 0U, stream_of(stream), arguments, nullptr);
  }

  // ---- the host ----

  bool query(void* event) override {
    const in_context here(*on_);
    const abi::result code = calls_.event_query(event_of(event));
    if (lost(code)) throw error(errc::device_failed, "cuEventQuery: " + calls_.explain(code));
    return code == abi::success;
  }
  std::optional<std::string> loss(void* stream) override {
    const in_context here(*on_);
    const abi::result code = calls_.stream_query(stream_of(stream));
    return lost(code) ? std::optional("cuStreamQuery: " + calls_.explain(code)) : std::nullopt;
  }
  bool capturing(void* stream) noexcept override {
    const in_context here(*on_);
    int status = abi::capture_none;
    return calls_.stream_capturing(stream_of(stream), &status) == abi::success && status != abi::capture_none;
  }
  bool arm(void* event, void* stream, const held_doorbell& b) override {
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
  void enter_thread() noexcept override {
    // The program may capture a graph on another thread meanwhile.
    int mode = abi::capture_mode_relaxed;
    calls_.push(on_->context);
    calls_.capture_mode(&mode);
  }

  // ---- other processes, by CUDA IPC ----

  process_sharing* sharing() noexcept override { return this; }

 private:
  shared_name name_memory(void* start) override {
    abi::ipc_memory h{};
    call("cuIpcGetMemHandle", calls_.ipc_name_memory, &h, address(start));
    return shared_name(h);
  }
  void* open_memory(const shared_name& of) override {
    abi::device_pointer opened = 0;
    call("cuIpcOpenMemHandle", calls_.ipc_open_memory, &opened, of.as<abi::ipc_memory>(),
         abi::ipc_lazy_peer_access);
    return reinterpret_cast<void*>(opened);
  }
  void close_memory(void* opened) noexcept override {
    const in_context here(*on_);
    calls_.ipc_close_memory(address(opened));
  }
  bool has_events() const noexcept override { return true; }
  void* make_shared_event(shared_name& name) override {
    const in_context here(*on_);
    abi::event* made = nullptr;
    check(calls_.event_create(&made, abi::event_disable_timing | abi::event_interprocess), "cuEventCreate");
    abi::ipc_event h{};
    if (const abi::result code = calls_.ipc_name_event(&h, made); code != abi::success) {
      calls_.event_destroy(made);
      check(code, "cuIpcGetEventHandle");
    }
    name = shared_name(h);
    return made;
  }
  void* open_event(const shared_name& of) override {
    abi::event* opened = nullptr;
    call("cuIpcOpenEventHandle", calls_.ipc_open_event, &opened, of.as<abi::ipc_event>());
    return opened;
  }

  // Launches one of tutti's kernels, one thread per 16 bytes, but at most 8 blocks per multiprocessor. Returns
  // false if there is none.
  template <class Kernel, class Arguments>
  bool launch(const Kernel* kernel, Arguments what, std::size_t element_bytes, void* stream) {
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
    throw error(as, fmt::format("{}: {}: {}{}", name(), what, calls_.explain(code), cure));
  }
  // Makes a call in the context, and checks it.
  template <class... P, class... A>
  void call(const char* what, abi::result (*f)(P...), A... arguments) const {
    const in_context here(*on_);
    check(f(arguments...), what);
  }

  const std::shared_ptr<shared_context> on_;
  const abi::table& calls_;
  std::map<void*, abi::stream*> sides_;  // by stream: the one that notifies the loop
  gpu::detail::word_pool words_;
};

std::shared_ptr<cuda_driver> driver_of(const gpu::device& on, const char* what) {
  return gpu::detail::driver_of<cuda_driver>(on, what, "CUDA");
}

template <class Loop>
gpu::device open_on(Loop& of, int wanted) {
  return gpu::detail::open_once(
      of, abi::load(), "CUDA", "cuda", wanted, [](const abi::table& calls, int ordinal) {
        return std::make_shared<cuda_driver>(gpu::detail::shared_context_of<shared_context>(calls, ordinal));
      });
}

}  // namespace

int device_count() noexcept { return abi::load().devices(); }
std::string why_not() { return abi::load().why; }

std::shared_ptr<void> make_context(int ordinal) {
  return gpu::detail::prepare_context<shared_context>(abi::load(), ordinal);
}
gpu::device open(const communicator& of, int ordinal) { return open_on(of, ordinal); }
gpu::device open(runtime& rt, int ordinal) { return open_on(rt, ordinal); }

bool is_cuda(const gpu::device& on) noexcept {
  return on && dynamic_cast<cuda_driver*>(&on.state().driver()) != nullptr;
}

const gpu::device& stream::checked(const gpu::device& on) {
  if (!is_cuda(on))
    throw error(errc::invalid_argument,
                fmt::format("a CUDA stream on {}, which is none of CUDA's devices", on.name()));
  return on;
}

// ---- kernels of the program ----

struct module::loaded {
  std::shared_ptr<shared_context> of;
  abi::module* handle = nullptr;
  ~loaded() {
    const in_context here(*of);
    of->calls.module_unload(handle);
  }
};

module::module(const gpu::device& on, const void* image) {
  const std::shared_ptr<shared_context> of = driver_of(on, "cuda::module")->shared();
  const in_context here(*of);
  abi::module* handle = nullptr;
  const abi::result code =
      image == nullptr ? abi::error_invalid_value : of->calls.module_load(&handle, image);
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("cuda::module on {}: {}", on.name(), of->calls.explain(code)));
  state_ = std::make_shared<loaded>();
  state_->of = of;
  state_->handle = handle;
}

void* module::kernel(const char* name) const {
  const shared_context& of = *state_->of;
  const in_context here(of);
  abi::function* found = nullptr;
  const abi::result code = of.calls.module_function(&found, state_->handle, name);
  if (code != abi::success)
    throw error(errc::invalid_argument,
                fmt::format("cuda::module: the kernel {}: {}", name, of.calls.explain(code)));
  return found;
}

void launch_by_address(const gpu::stream& in, void* kernel, launch_size size, void** arguments) {
  driver_of(in.on(), "cuda::launch")->launch(kernel, size.blocks, size.threads, arguments, in.native());
}

}  // namespace tutti::cuda
