// SPDX-License-Identifier: Apache-2.0
// A device of PyTorch whose memory, streams and events are those of the stand-in for libcuda, as a GPU's are CUDA's. It
// computes on the CPU. As PyTorch's allocators do, its allocator gives freed memory to the next tensor; at once, so that
// whoever still uses it shows.
#include "cuda/cuda_api.hpp"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include <torch/library.h>

namespace {

namespace abi = tutti::cuda::abi;

const abi::table& cuda() {
  static const abi::table& calls = abi::load().required("stand-in for libcuda");
  return calls;
}
void check(abi::result code, const char* call) {
  TORCH_CHECK(code == abi::success, call, ": ", cuda().explain(code));
}
abi::device_pointer address(const void* memory) { return reinterpret_cast<abi::device_pointer>(memory); }

constexpr int most_devices = 8;
thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_stream[most_devices] = {};

c10::Device device_at(c10::DeviceIndex device) { return {c10::kPrivateUse1, device}; }
c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device_at(device), id);
}

// Makes a device's context current.
class on {
 public:
  explicit on(c10::DeviceIndex device) {
    static std::mutex mutex;
    static std::map<int, abi::context*> contexts;
    const std::scoped_lock hold(mutex);
    abi::context*& of = contexts[device];
    if (of == nullptr) check(cuda().retain(&of, device), "cuDevicePrimaryCtxRetain");
    cuda().push(of);
  }
  ~on() {
    abi::context* of = nullptr;
    cuda().pop(&of);
  }
};

abi::stream* native(const c10::Stream& s) {
  static std::mutex mutex;
  static std::map<std::pair<int, c10::StreamId>, abi::stream*> made;
  const on here(s.device_index());
  const std::scoped_lock hold(mutex);
  abi::stream*& found = made[{s.device_index(), s.id()}];
  if (found == nullptr) check(cuda().stream_create(&found, 0, 0), "cuStreamCreate");
  return found;
}

bool has_passed(const c10::Stream& s) {
  const on here(s.device_index());
  const abi::result code = cuda().stream_query(native(s));
  if (code != abi::error_not_ready) check(code, "cuStreamQuery");
  return code == abi::success;
}
void wait_for(const c10::Stream& s) {
  while (!has_passed(s)) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

struct guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kPrivateUse1, current_device}; }
  void setDevice(c10::Device d) const override { uncheckedSetDevice(d); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.has_index()) current_device = d.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(cuda().devices());
  }

  c10::Stream getStream(c10::Device d) const override {
    const c10::DeviceIndex i = d.has_index() ? d.index() : current_device;
    return stream_of(i, current_stream[i]);
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return stream_of(d.has_index() ? d.index() : current_device, 0);
  }
  c10::Stream getNewStream(c10::Device d, int) const override {
    static std::atomic<c10::StreamId> next{0};
    return stream_of(d.has_index() ? d.index() : current_device, ++next);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream exchangeStream(c10::Stream s) const override {
    return stream_of(s.device_index(), std::exchange(current_stream[s.device_index()], s.id()));
  }
  void* getStreamNativeHandle(const c10::Stream s) const override { return native(s); }
  bool isStreamCapturing(const c10::Stream& s) const override {
    const on here(s.device_index());
    int status = 0;
    check(cuda().stream_capturing(native(s), &status), "cuStreamIsCapturing");
    return status != abi::capture_none;
  }
  bool queryStream(const c10::Stream& s) const override { return has_passed(s); }
  void synchronizeStream(const c10::Stream& s) const override { wait_for(s); }

  void record(void** event, const c10::Stream& s, c10::DeviceIndex, c10::EventFlag) const override {
    const on here(s.device_index());
    auto** const e = reinterpret_cast<abi::event**>(event);
    if (*e == nullptr) check(cuda().event_create(e, abi::event_disable_timing), "cuEventCreate");
    check(cuda().event_record(*e, native(s)), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& s) const override {
    if (event == nullptr) return;
    const on here(s.device_index());
    check(cuda().stream_wait(native(s), static_cast<abi::event*>(event), 0), "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    const on here(current_device);
    return event == nullptr || cuda().event_query(static_cast<abi::event*>(event)) == abi::success;
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void destroyEvent(void* event, c10::DeviceIndex device) const noexcept override {
    const on here(device < 0 ? current_device : device);
    cuda().event_destroy(static_cast<abi::event*>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& s) const override;
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, guard);

// What is freed is overwritten in the order of its stream, and is that stream's next memory of this size.
struct allocator final : c10::Allocator {
  struct block {
    void* data;
    std::size_t bytes;
    c10::Stream of;
    std::vector<c10::Stream> used_on = {};
  };
  std::mutex mutex;
  std::map<std::tuple<int, c10::StreamId, std::size_t>, std::vector<block*>> spare;

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Stream of = guard().getStream(guard().getDevice());
    if (bytes == 0) return {nullptr, of.device()};
    {
      const std::scoped_lock hold(mutex);
      auto& free = spare[{of.device_index(), of.id(), bytes}];
      if (!free.empty()) {
        block* const b = free.back();
        free.pop_back();
        return {b->data, b, &give_back, of.device()};
      }
    }
    const on here(of.device_index());
    abi::device_pointer memory = 0;
    check(cuda().alloc(&memory, bytes), "cuMemAlloc");
    auto* const b = new block{reinterpret_cast<void*>(memory), bytes, of};
    return {b->data, b, &give_back, of.device()};
  }
  static void give_back(void* made) {
    auto* const b = static_cast<block*>(made);
    for (const c10::Stream& s : b->used_on) {
      void* event = nullptr;
      guard().record(&event, s, s.device_index(), c10::EventFlag::PYTORCH_DEFAULT);
      guard().block(event, b->of);
      guard().destroyEvent(event, s.device_index());
    }
    b->used_on.clear();
    const on here(b->of.device_index());
    cuda().fill(address(b->data), 0xee, b->bytes, native(b->of));
    allocator& home = the();
    const std::scoped_lock hold(home.mutex);
    home.spare[{b->of.device_index(), b->of.id(), b->bytes}].push_back(b);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const on here(current_device);
    check(cuda().copy(address(to), address(from), bytes, native(guard().getStream(guard().getDevice()))),
          "cuMemcpyAsync");
  }
  static allocator& the() {
    static auto* const it = new allocator;
    return *it;
  }
};
REGISTER_ALLOCATOR(c10::kPrivateUse1, &allocator::the());

void guard::recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& s) const {
  if (auto* const b = static_cast<allocator::block*>(memory.get_context()); b != nullptr && b->of != s)
    b->used_on.push_back(s);
}

// Between memory of the host and the device, after the work of the current stream. Waits for it.
void copy_raw(void* to, const void* from, std::size_t bytes, c10::DeviceIndex device, bool to_host) {
  if (bytes == 0) return;
  const c10::Stream s = guard().getStream(device_at(device));
  const on here(device);
  void* pinned = nullptr;
  check(cuda().host_alloc(&pinned, bytes, 0), "cuMemHostAlloc");  // kept: freeing waits for the device
  if (!to_host) std::memcpy(pinned, from, bytes);
  check(cuda().copy(address(to_host ? pinned : to), address(to_host ? from : pinned), bytes, native(s)),
        "cuMemcpyAsync");
  wait_for(s);
  if (to_host) std::memcpy(to, pinned, bytes);
}

// All of the memory that a tensor spans, on the host, and a view like the tensor on it.
std::pair<at::Tensor, at::Tensor> on_host(const at::Tensor& t) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
  const at::Tensor flat =
      at::empty({t.numel() == 0 ? 0 : last + 1}, at::TensorOptions().dtype(t.scalar_type()));
  copy_raw(flat.mutable_data_ptr(), t.const_data_ptr(), flat.nbytes(), t.device().index(), true);
  return {flat, flat.as_strided(t.sizes(), t.strides())};
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  const bool there = from.is_privateuseone(), back = to.is_privateuseone();
  if (there && back && from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype() &&
      from.sizes() == to.sizes()) {
    const on here(to.device().index());
    check(cuda().copy(address(to.mutable_data_ptr()), address(from.const_data_ptr()), to.nbytes(),
                      native(guard().getStream(to.device()))),
          "cuMemcpyAsync");
    return to;
  }
  const at::Tensor values = there ? on_host(from).second : from;
  if (!back) return to.copy_(values), to;
  const auto [flat, view] = on_host(to);
  view.copy_(values);
  copy_raw(to.mutable_data_ptr(), flat.const_data_ptr(), flat.nbytes(), to.device().index(), false);
  return to;
}

at::Tensor empty_there(c10::IntArrayRef size, std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                       std::optional<c10::Device> device, std::optional<bool>,
                       std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard here(device);
  return at::detail::empty_generic(size, &allocator::the(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}
at::Tensor strided_there(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard here(device);
  return at::detail::empty_strided_generic(size, stride, &allocator::the(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}
at::Scalar scalar_of(const at::Tensor& t) { return t.cpu().item(); }
at::Tensor view_of(const at::Tensor& t, c10::IntArrayRef size) { return at::native::view(t, size); }
at::Tensor strided_view_of(const at::Tensor& t, c10::IntArrayRef size, c10::IntArrayRef stride,
                           std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(t, size, stride, offset);
}
void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_there);
  m.impl("empty_strided", &strided_there);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", [](const at::Tensor& from, const at::Tensor& to) {
    TORCH_CHECK(from.sizes() == to.sizes(), "the stand-in does not resize");
    return copy_from(from, to, false);
  });
  m.impl("_local_scalar_dense", &scalar_of);
  m.impl("view", &view_of);
  m.impl("as_strided", &strided_view_of);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

struct hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

std::deque<std::atomic<bool>> gates;  // never freed: streams refer to them

template <class F>
F* control(const char* name) {
  static void* const library = ::dlopen(std::getenv("TUTTI_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F*>(::dlsym(library, name));
}

}  // namespace

PYBIND11_MODULE(stand_in, m) {
  at::RegisterPrivateUse1HooksInterface(new hooks);
  c10::register_privateuse1_backend("stand_in");
  m.def("is_available", [] { return true; });
  m.def("device_count", [] { return cuda().devices(); });
  m.def("current_device", [] { return static_cast<int>(current_device); });
  m.def("reset", [](int devices, int adversary) {
    control<void(int, std::uint64_t, std::uint64_t, int)>("tutti_fake_cuda_reset")(devices, adversary, 0, 1);
  });
  m.def("misuses", [] { return control<std::uint64_t()>("tutti_fake_cuda_misuses")(); });
  m.def("last_misuse", [] { return control<const char*()>("tutti_fake_cuda_last_misuse")(); });
  m.def("new_stream",
        [](c10::DeviceIndex device) { return guard().getNewStream(device_at(device), 0).id(); });
  // Sets the current stream, and returns the one before; 0 is the default stream.
  m.def("set_stream", [](c10::DeviceIndex device, c10::StreamId id) {
    return guard().exchangeStream(stream_of(device, id)).id();
  });
  m.def("passed", [](c10::DeviceIndex device) { return has_passed(guard().getStream(device_at(device))); });
  m.def(
      "synchronize", [](c10::DeviceIndex device) { wait_for(guard().getStream(device_at(device))); },
      pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("set_capturing", [](c10::DeviceIndex device, bool capturing) {
    control<void(void*, int)>("tutti_fake_cuda_set_capturing")(native(guard().getStream(device_at(device))),
                                                               capturing ? 1 : 0);
  });
  // The current stream stops here, as in a long kernel, until the gate that is returned is opened.
  m.def("hold", [](c10::DeviceIndex device) {
    std::atomic<bool>& gate = gates.emplace_back(false);
    const on here(device);
    check(cuda().call_host(
              native(guard().getStream(device_at(device))),
              [](void* g) { static_cast<std::atomic<bool>*>(g)->wait(false); }, &gate),
          "cuLaunchHostFunc");
    return gates.size() - 1;
  });
  m.def("open", [](std::size_t gate) {
    gates[gate] = true;
    gates[gate].notify_all();
  });
}
