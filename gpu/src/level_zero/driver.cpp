// SPDX-License-Identifier: Apache-2.0
#include "level_zero/driver.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti::level_zero {
namespace {

using gpu::detail::progress;
using gpu::detail::word;

abi::list* list_of(void* stream) noexcept { return static_cast<abi::list*>(stream); }
shared_context::mark& mark_of(void* event) noexcept { return *static_cast<shared_context::mark*>(event); }
shared_context::gate& gate_of(const word& w) noexcept {
  return *static_cast<shared_context::gate*>(w.handle);
}

}  // namespace

std::string level_zero_driver::name() const {
  return fmt::format("level_zero device {} ({})", on_->ordinal, on_->name);
}

gpu::capabilities level_zero_driver::can() const noexcept {
  gpu::capabilities c;
  c.host_call = true;
  c.gate = true;
  return c;
}

void level_zero_driver::destroy_stream(void* stream) noexcept { on_->destroy_list(list_of(stream)); }
void level_zero_driver::destroy_event(void* event) noexcept {
  delete static_cast<shared_context::mark*>(event);
}

word level_zero_driver::make_word() {
  auto made = std::make_unique<shared_context::gate>(on_->make_gate());
  std::atomic<std::uint64_t>* const value = made->value;
  return word{value, made.release()};
}
void level_zero_driver::destroy_word(word w) noexcept {
  const std::unique_ptr<shared_context::gate> gone(&gate_of(w));
  on_->destroy_gate(std::move(*gone));
}

void level_zero_driver::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes > 0) on_->copy(to, from, bytes, list_of(stream));
}
void level_zero_driver::fill(void* to, std::byte value, std::size_t bytes, void* stream) {
  if (bytes > 0) on_->fill(to, std::to_integer<unsigned char>(value), bytes, list_of(stream));
}
void level_zero_driver::record(void* event, void* stream) { on_->record(mark_of(event), list_of(stream)); }
void level_zero_driver::wait(void* stream, void* event) { on_->wait(mark_of(event), list_of(stream)); }
void level_zero_driver::write(void* stream, const word& w, std::uint64_t) {
  on_->open(gate_of(w), list_of(stream));
}
void level_zero_driver::wait(void* stream, const word& w, std::uint64_t) {
  on_->wait(gate_of(w), list_of(stream));
}
void level_zero_driver::changed(const word& w) noexcept { on_->calls.event_signal(gate_of(w).opened->event); }

progress level_zero_driver::query(void* event, std::string& why) noexcept {
  const abi::result code = on_->query(mark_of(event));
  if (code == abi::success) return progress::done;
  if (code == abi::not_ready) return progress::pending;
  why = fmt::format("zeEventQueryStatus: {}", on_->calls.explain(code, on_->driver));
  return progress::failed;
}

progress level_zero_driver::health(void* stream, std::string& why) noexcept {
  const abi::result code = on_->health(list_of(stream));
  if (code != abi::device_lost && code != abi::device_requires_reset) return progress::pending;
  why = fmt::format("the device has been lost: {} (dmesg says why)", on_->calls.explain(code, on_->driver));
  return progress::failed;
}

bool level_zero_driver::arm(void* event, void*,
                            const std::shared_ptr<const gpu::detail::doorbell_handle>& b) {
  on_->watch(mark_of(event), b);
  return true;
}
bool level_zero_driver::synchronize(void* stream, std::chrono::milliseconds longest) noexcept {
  return on_->synchronize(list_of(stream), longest);
}

}  // namespace tutti::level_zero
