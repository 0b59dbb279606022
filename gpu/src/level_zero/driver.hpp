// SPDX-License-Identifier: Apache-2.0
// The driver of a Level Zero GPU. tutti has no kernels for it: reductions are staged, or oneCCL does them.
#pragma once

#include "device/sharing.hpp"
#include "level_zero/context.hpp"

namespace tutti::level_zero {

class level_zero_driver final : public gpu::detail::driver, gpu::detail::process_sharing {
 public:
  explicit level_zero_driver(std::shared_ptr<shared_context> on) : on_(std::move(on)) {}

  std::string name() const override;
  int ordinal() const noexcept override { return on_->ordinal; }
  std::string identity() const override { return on_->identity; }
  gpu::capabilities can() const noexcept override;
  gpu::memory_info describe(const void* memory) const noexcept override { return on_->describe(memory); }
  void* allocate(std::size_t bytes, gpu::memory_kind kind) override { return on_->allocate(bytes, kind); }
  void free(void* memory, gpu::memory_kind) noexcept override { on_->free(memory); }
  // Level Zero 1.4 cannot pin existing memory.
  bool pin(void*, std::size_t) noexcept override { return false; }
  void unpin(void*) noexcept override {}
  void* make_stream(bool urgent) override { return on_->make_list(urgent); }
  void destroy_stream(void* stream) noexcept override;
  void* make_event() override { return new shared_context::mark; }
  void destroy_event(void* event) noexcept override;
  // Words serve only as gates: 0, then 1.
  gpu::detail::word make_word() override;
  void destroy_word(gpu::detail::word w) noexcept override;
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override;
  void fill(void* to, std::byte value, std::size_t bytes, void* stream) override;
  void record(void* event, void* stream) override;
  void wait(void* stream, void* event) override;
  void write(void* stream, const gpu::detail::word& w, std::uint64_t value) override;
  void wait(void* stream, const gpu::detail::word& w, std::uint64_t at_least) override;
  void changed(const gpu::detail::word& w) noexcept override;
  bool reduce(reduce_kind, element_type, const gpu::kernels::reduce_arguments&, void*) override {
    return false;
  }
  bool convert(element_type, element_type, const gpu::kernels::convert_arguments&, void*) override {
    return false;
  }
  gpu::detail::progress query(void* event, std::string& why) noexcept override;
  gpu::detail::progress health(void* stream, std::string& why) noexcept override;
  bool capturing(void*) noexcept override { return false; }  // Level Zero has no capture
  bool arm(void* event, void* stream, const std::shared_ptr<const gpu::detail::doorbell_handle>& b) override;
  bool synchronize(void* stream, std::chrono::milliseconds longest) noexcept override;
  gpu::detail::process_sharing* sharing() noexcept override { return on_->shares_memory ? this : nullptr; }

  const std::shared_ptr<shared_context>& shared() const noexcept { return on_; }

 private:
  gpu::detail::shared_name name_memory(void* start) override;
  void* open_memory(const gpu::detail::shared_name& of) override;
  void close_memory(void* opened) noexcept override;
  // A Level Zero event may be reset only when no process waits for it.
  bool has_events() const noexcept override { return false; }
  void* make_shared_event(gpu::detail::shared_name& name) override;
  void* open_event(const gpu::detail::shared_name& of) override;

  // The descriptor of opened memory, kept while that is open.
  struct descriptor {
    int number = -1;
    std::uint64_t file = 0;
  };

  std::shared_ptr<shared_context> on_;
  std::mutex opened_mutex_;
  std::map<void*, descriptor> opened_;
};

}  // namespace tutti::level_zero
