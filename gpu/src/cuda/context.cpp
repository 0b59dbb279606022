// SPDX-License-Identifier: Apache-2.0
#include "cuda/context.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/asio/post.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <tutti/error.hpp>

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
namespace {

// Of each priority, for all loops of the process.
constexpr std::size_t streams_in_stock = 24;

// Loads the file that TUTTI_CUDA_KERNELS names, or the kernels that are built into this library. Returns null if
// there are none, or none for this GPU.
abi::module* load_kernels(const abi::table& calls) {
  const char* const told = std::getenv("TUTTI_CUDA_KERNELS");
  std::string file;
  const void* image = nullptr;
#ifdef TUTTI_CUDA_KERNELS_FILE
  image = tutti_cuda_kernels_begin;
#endif
  if (told != nullptr && *told != '\0') {
    std::ifstream in(told, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
    image = file.c_str();
  }
  abi::module* loaded = nullptr;
  return image != nullptr && calls.module_load(&loaded, image) == abi::success ? loaded : nullptr;
}

}  // namespace

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
  calls.device_uuid(&id, device);
  identity = fmt::format("cuda-{:02x}", fmt::join(id.bytes, ""));
  int memory_ops = 0;
  calls.device_attribute(&memory_ops, abi::attribute_can_use_64_bit_stream_mem_ops, device);
  calls.device_attribute(&multiprocessors, abi::attribute_multiprocessors, device);
  words = memory_ops != 0;
  int by_service = 0;
  calls.device_attribute(&by_service, abi::attribute_mps_enabled, device);
  processes_at_once = by_service != 0;
  check(calls.retain(&context, device), "cuDevicePrimaryCtxRetain");
  const in_context here(*this);
  // GPUs too old for the kernels have none: their collectives are staged.
  module_ = load_kernels(calls);
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

void shared_context::free_later(void* memory, gpu::memory_kind kind) noexcept {
  boost::asio::post(reaper_, [this, memory, kind] {
    const in_context here(*this);
    // In this mode, freeing does not break a capture on another thread.
    int mode = abi::capture_mode_relaxed;
    calls.capture_mode(&mode);
    std::unique_lock lock(frees_mutex_);
    // Gates open at the end of their loop at the latest.
    may_free_.wait(lock, [this] { return holds_ == 0; });
    kind == gpu::memory_kind::pinned ? calls.host_free(memory)
                                     : calls.free(reinterpret_cast<abi::device_pointer>(memory));
  });
}

void shared_context::hold_frees(bool on) noexcept {
  const std::lock_guard lock(frees_mutex_);
  holds_ += on ? 1 : -1;
  if (holds_ == 0) may_free_.notify_one();
}

}  // namespace tutti::cuda
