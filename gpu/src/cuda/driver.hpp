// SPDX-License-Identifier: Apache-2.0
// The driver of a CUDA GPU, in the primary context.
#pragma once

#include "cuda/cuda_api.hpp"
#include "device/driver.hpp"
#include "device/sharing.hpp"

#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::cuda {

// The file that TUTTI_CUDA_KERNELS names, or the kernels that are built into this library; null: none.
const void* find_kernel_image();

// The primary context of one device, its kernels, and the thread that frees its memory. Shared by all loops
// of the process. cuMemFree waits for the device, which no loop may do. It holds a lock of the driver
// meanwhile, and a loop that waits for that lock opens no gate and sends nothing to other ranks. So nothing
// is freed while a gate is closed or work waits for other ranks.
class shared_context {
 public:
  shared_context(const abi::table& calls, int ordinal);
  shared_context(const shared_context&) = delete;
  shared_context& operator=(const shared_context&) = delete;
  ~shared_context();

  // Returns null if there is no such kernel.
  abi::function* kernel(const char* name);
  void free_later(void* memory, gpu::memory_kind kind) noexcept;
  bool has_kernels() const noexcept { return module_ != nullptr; }
  void hold_frees(bool on) noexcept;
  // A stream that no one else uses, in this context, which is current. Given back, it still does its work.
  abi::result take_stream(abi::stream** taken, bool urgent);
  void give_back(abi::stream* s);

  const abi::table& calls;
  const int ordinal;
  abi::device device = 0;
  abi::context* context = nullptr;
  std::string name;
  std::string identity;
  int multiprocessors = 1;
  bool words = false;
  bool processes_at_once = false;  // by MPS

 private:
  abi::result create_stream(abi::stream** made, bool urgent);

  abi::module* module_ = nullptr;
  std::mutex mutex_;
  std::map<std::string_view, abi::function*> functions_;  // keys are static strings
  std::vector<abi::stream*> spare_streams_[2];            // by priority: usual, urgent; guarded by mutex_
  std::map<abi::stream*, bool> taken_streams_;            // urgent?
  std::mutex frees_mutex_;                                // held while memory is freed
  std::condition_variable may_free_;
  int holds_ = 0;
  boost::asio::thread_pool reaper_{1};
};

// Makes the context current for its lifetime, whatever the thread had.
class in_context {
 public:
  explicit in_context(const shared_context& c) noexcept
      : calls_(c.calls), entered_(c.calls.push(c.context) == abi::success) {}
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

class cuda_driver final : public gpu::detail::driver, gpu::detail::process_sharing {
 public:
  explicit cuda_driver(std::shared_ptr<shared_context> on);
  ~cuda_driver() override;

  std::string name() const override;
  int ordinal() const noexcept override { return on_->ordinal; }
  std::string identity() const override { return on_->identity; }
  gpu::capabilities can() const noexcept override;
  gpu::memory_info describe(const void* memory) const noexcept override;
  void* allocate(std::size_t bytes, gpu::memory_kind kind) override;
  void free(void* memory, gpu::memory_kind kind) noexcept override;
  bool pin(void* memory, std::size_t bytes) noexcept override;
  void unpin(void* memory) noexcept override;
  void* make_stream(bool urgent) override;
  void destroy_stream(void* stream) noexcept override;
  void* make_event() override;
  void destroy_event(void* event) noexcept override;
  gpu::detail::word make_word() override;
  void destroy_word(gpu::detail::word w) noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override;
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override;
  void record(void* event, void* stream) override;
  void wait(void* stream, void* event) override;
  void write(void* stream, const gpu::detail::word& w, std::uint64_t value) override;
  void wait(void* stream, const gpu::detail::word& w, std::uint64_t at_least) override;
  bool reduce(reduce_kind kind, element_type type, const gpu::kernels::reduce_arguments& what,
              void* stream) override;
  bool convert(element_type from, element_type to, const gpu::kernels::convert_arguments& what,
               void* stream) override;
  gpu::detail::progress query(void* event, std::string& why) noexcept override;
  gpu::detail::progress health(void* stream, std::string& why) noexcept override;
  bool capturing(void* stream) noexcept override;
  bool arm(void* event, void* stream, const std::shared_ptr<const gpu::detail::doorbell_handle>& b) override;
  bool synchronize(void* stream, std::chrono::milliseconds longest) noexcept override;
  void enter_thread() noexcept override;
  gpu::detail::process_sharing* sharing() noexcept override;
  void hold_frees(bool on) noexcept override { on_->hold_frees(on); }

  const std::shared_ptr<shared_context>& shared() const noexcept { return on_; }
  void launch(void* kernel, unsigned blocks, unsigned threads, void** arguments, void* stream);

 private:
  gpu::detail::shared_name name_memory(void* start) override;
  void* open_memory(const gpu::detail::shared_name& of) override;
  void close_memory(void* opened) noexcept override;
  bool has_events() const noexcept override { return true; }
  void* make_shared_event(gpu::detail::shared_name& name) override;
  void* open_event(const gpu::detail::shared_name& of) override;

  // Launches one of tutti's kernels, one thread per 16 bytes, but at most 8 blocks per multiprocessor. Returns
  // false if there is none.
  template <class Kernel, class Arguments>
  bool launch(const Kernel* kernel, Arguments what, std::size_t element_bytes, void* stream);
  void check(abi::result code, const char* what) const;
  // Makes a call in the context, and checks it.
  template <class... P, class... A>
  void call(const char* what, abi::result (*f)(P...), A... arguments) const {
    const in_context here(*on_);
    check(f(arguments...), what);
  }
  gpu::detail::progress judge(abi::result code, const char* what, std::string& why) const noexcept;

  std::shared_ptr<shared_context> on_;
  const abi::table& calls_;
  std::map<void*, abi::stream*> sides_;  // by stream: the one that notifies the loop
  std::mutex words_mutex_;               // gates may be destroyed on any thread
  std::vector<void*> word_pages_;
  std::vector<gpu::detail::word> spare_words_;
};

}  // namespace tutti::cuda
