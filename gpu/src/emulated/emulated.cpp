// SPDX-License-Identifier: Apache-2.0
// The emulated device: its driver and its public functions.
#include "device/open_once.hpp"
#include "emulated/device_queues.hpp"
#include "kernels/host_kernels.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <optional>
#include <tutti/emulated.hpp>
#include <tutti/runtime.hpp>

namespace tutti::emulated {
using namespace gpu::impl;

namespace {

using gpu::memory_info;
using gpu::memory_kind;

std::atomic<int> devices_made{0};

device_queues::queue* queue_of(void* stream) noexcept { return static_cast<device_queues::queue*>(stream); }
device_queues::event& event_of(void* event) noexcept { return *static_cast<device_queues::event*>(event); }

}  // namespace

// The driver of a device, for all loops.
struct emulated_device::impl final : driver {
  static constexpr const char* vendor_name = "tutti::emulated";

  explicit impl(options how) : driver(devices_made.fetch_add(1)), work(how) {
    name_ = fmt::format("emulated device {}", ordinal_);
    identity_ = fmt::format("emulated-{}", work.memory().base());
    can_ = how;
  }

  memory_info describe(const void* memory) const noexcept override {
    const arena::block b = work.memory().find(memory);
    if (b.is == arena::kind::none) return {};
    return {b.is == arena::kind::pinned ? memory_kind::pinned : memory_kind::device, ordinal_, b.base,
            b.bytes};
  }

  void* allocate(std::size_t bytes, memory_kind kind) override {
    fail_if_lost();
    if (kind == memory_kind::pinned) return work.memory().allocate_pinned(bytes);
    if (void* const memory = work.memory().allocate(bytes)) return memory;
    throw error(errc::resources,
                fmt::format("{} has no room for {} bytes of its {} (emulated::options::memory_bytes)", name(),
                            bytes, work.how().memory_bytes));
  }
  void free(void* memory, memory_kind kind) noexcept override {
    work.memory().release(memory, kind == memory_kind::pinned ? arena::kind::pinned : arena::kind::own);
  }
  bool pin(void* memory, std::size_t bytes) noexcept override { return work.memory().pin(memory, bytes); }
  void unpin(void* memory) noexcept override { work.memory().release(memory, arena::kind::pinned); }

  void* make_stream(bool) override { return work.make_queue(); }
  void destroy_stream(void* stream) noexcept override { work.destroy_queue(queue_of(stream)); }
  void* make_event() override { return new device_queues::event; }
  void destroy_event(void* event) noexcept override { delete static_cast<device_queues::event*>(event); }
  // Queued work refers to words by address: their pages live as long as the queues.
  word make_word() override { return word{words.take(*this), nullptr}; }
  void destroy_word(word w) noexcept override { words.give_back(w.value); }

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    work.run(usable(stream), [e = &work, to, from, bytes] {
      if (bytes > 0) std::memmove(e->reach(to, bytes), e->reach(from, bytes), bytes);
    });
  }
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override {
    work.run(usable(stream), [e = &work, to, value, bytes] {
      if (bytes > 0) std::memset(e->reach(to, bytes), std::to_integer<int>(value), bytes);
    });
  }
  void record(void* event, void* stream) override { work.record(usable(stream), event_of(event)); }
  void wait(void* stream, void* event) override { work.wait(usable(stream), event_of(event)); }
  bool can_wait_for(const driver& other) const noexcept override {
    return dynamic_cast<const impl*>(&other) != nullptr;
  }
  void write(void* stream, const word& w, std::uint64_t value) override {
    work.write(usable(stream), w.value, value);
  }
  void wait(void* stream, const word& w, std::uint64_t at_least) override {
    work.wait(usable(stream), w.value, at_least);
  }
  void changed(const word&) noexcept override { work.changed(); }
  bool launch(const gpu::kernels::kernel* kernel, const gpu::kernels::arguments& what,
              void* stream) override {
    device_queues::queue* const queue = usable(stream);
    if (!work.how().kernels || kernel == nullptr) return false;
    work.run(queue, [e = &work, kernel, what] {
      gpu::kernels::run_on_host(*kernel, what,
                                [e](const void* at, std::size_t n) { return e->reach(at, n); });
    });
    return true;
  }

  bool query(void* event) override {
    const bool passed = work.passed(event_of(event));
    if (!passed) fail_if_lost();
    return passed;
  }
  std::optional<std::string> loss(void*) override {
    return work.failed() ? std::optional(work.failure()) : std::nullopt;
  }
  bool capturing(void* stream) noexcept override {
    return queue_of(stream)->capturing.load(std::memory_order_relaxed);
  }
  bool arm(void* event, void*, const std::shared_ptr<const doorbell_handle>& b) override {
    // Each notification has its own queue: one that waits must not delay another.
    device_queues::queue* const side = work.make_queue();
    work.wait(side, event_of(event));
    work.call(side, [b] { b->notify(); });
    work.destroy_queue(side);
    return true;
  }

  // The queue of a stream, unless the device has failed.
  device_queues::queue* usable(void* stream) const {
    fail_if_lost();
    return queue_of(stream);
  }
  void fail_if_lost() const {
    if (work.failed()) throw error(errc::device_failed, work.failure());
  }

  device_queues work;
  word_pool words;
};

emulated_device::emulated_device(options how) : impl_(std::make_unique<impl>(how)) {}
emulated_device::~emulated_device() = default;
void emulated_device::fail_after(std::uint64_t n, std::string why) {
  impl_->work.fail_after(n, std::move(why));
}
bool emulated_device::failed() const noexcept { return impl_->work.failed(); }
std::size_t emulated_device::allocations() const noexcept { return impl_->work.memory().allocations(); }
void emulated_device::pause(bool on) noexcept { impl_->work.pause(on); }

std::shared_ptr<emulated_device> default_device(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<emulated_device>> devices;
  const std::lock_guard lock(mutex);
  return lock_or_make(devices[ordinal]);
}

namespace {
template <class Loop>
gpu::device open_on(Loop& of, const std::shared_ptr<emulated_device>& on) {
  const std::shared_ptr<driver> by(on, &on->internals());  // lives as long as the device
  return gpu::device(std::make_shared<attachment>(of, by));
}
}  // namespace
gpu::device open(const communicator& of, std::shared_ptr<emulated_device> on) { return open_on(of, on); }
gpu::device open(runtime& rt, std::shared_ptr<emulated_device> on) { return open_on(rt, on); }

const void* access::find(const void* memory, std::size_t bytes) const {
  return device_.work.reach(memory, bytes);
}

void launch(const gpu::stream& in, std::function<void(access)> f) {
  emulated_device::impl& on = *driver_of<emulated_device::impl>(in.on(), "emulated::launch");
  on.work.run(on.usable(in.native()), [f = std::move(f), &on] { f(access(on)); });
}

void set_capturing(const gpu::stream& s, bool on) {
  if (!s || dynamic_cast<emulated_device::impl*>(&s.state()->on().driver()) == nullptr)
    throw_not_of(s.on(), emulated_device::impl::vendor_name, "emulated::set_capturing");
  queue_of(s.native())->capturing.store(on, std::memory_order_relaxed);
}

}  // namespace tutti::emulated
