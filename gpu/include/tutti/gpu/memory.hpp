// SPDX-License-Identifier: Apache-2.0
// Memory of devices: its owner, its kind, and spans of it that host code cannot dereference by mistake.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/extend/call.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tutti::gpu {

class device;

// The kind of memory that a pointer points to.
enum class memory_kind : std::uint8_t {
  // Ordinary memory: copies from and to it pass through pinned memory of the library.
  host,
  // Host memory that the device reads and writes directly.
  pinned,
  // Memory that the host must not touch.
  device,
  // Memory that both may touch.
  managed,
  unknown
};

// What the device's driver knows about a pointer.
struct memory_info {
  memory_kind kind = memory_kind::host;
  // Ordinal; -1: not of a device.
  int device = -1;
  // Start of the allocation.
  const void* base = nullptr;
  // Size of the allocation.
  std::size_t bytes = 0;
};

// A borrowed range of `size` elements that a device can reach. It cannot be dereferenced.
template <class T>
class device_span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using device_span_type = device_span;

  constexpr device_span() noexcept = default;
  constexpr device_span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
  template <class U>
    requires std::is_convertible_v<U (*)[], T (*)[]>
  constexpr device_span(device_span<U> other) noexcept : data_(other.data()), size_(other.size()) {}

  // The address, for kernels.
  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  // The `count` elements from `offset` on.
  constexpr device_span subspan(std::size_t offset, std::size_t count) const noexcept {
    return {data_ + offset, count};
  }
  constexpr device_span first(std::size_t count) const noexcept { return {data_, count}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace impl {

// Memory of or for a device. Freed when the device has finished the last operation that uses it.
struct allocation {
  void* data = nullptr;
};
std::shared_ptr<allocation> allocate(const device& on, std::size_t bytes, memory_kind kind);

// What device_buffer and pinned_buffer share.
template <class T, memory_kind Kind>
class owned_memory {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  owned_memory() noexcept = default;
  owned_memory(const device& on, std::size_t size)
      : memory_(allocate(on, size * sizeof(T), Kind)), size_(size) {}

  T* data() const noexcept { return memory_ ? static_cast<T*>(memory_->data) : nullptr; }
  std::size_t size() const noexcept { return size_; }
  const std::shared_ptr<allocation>& memory() const noexcept { return memory_; }

 private:
  std::shared_ptr<allocation> memory_;
  std::size_t size_ = 0;
};

// Keeps the memory alive, if it has an owner.
struct view : tutti::extend::buffer_view {
  std::shared_ptr<const void> keep;
};

}  // namespace impl

// Owned memory of a device. Operations on the buffer, unlike those on a span of it, keep the memory until the
// device has finished. That holds even if the buffer is destroyed or the operation is cancelled.
template <class T>
class device_buffer : public impl::owned_memory<T, memory_kind::device> {
 public:
  // device_buffer(on, size): `size` elements, not initialised. Call it on the loop thread of `on`.
  // Errors: throws errc::resources.
  // Cost: may wait for the device: do not allocate while it works.
  using impl::owned_memory<T, memory_kind::device>::owned_memory;
  using device_span_type = device_span<T>;

  device_span<T> span() noexcept { return {this->data(), this->size()}; }
  device_span<const T> span() const noexcept { return {this->data(), this->size()}; }
  operator device_span<T>() noexcept { return span(); }
  operator device_span<const T>() const noexcept { return span(); }
  std::size_t bytes() const noexcept { return span().bytes(); }
};

// Owned host memory that the device copies to and from directly. Ordinary memory for the host.
template <class T>
class pinned_buffer : public impl::owned_memory<T, memory_kind::pinned> {
 public:
  // pinned_buffer(on, size): as device_buffer's.
  using impl::owned_memory<T, memory_kind::pinned>::owned_memory;

  T* begin() const noexcept { return this->data(); }
  T* end() const noexcept { return begin() + this->size(); }
  T& operator[](std::size_t i) const noexcept { return begin()[i]; }
};

namespace impl {

template <class B>
view view_of(B& buffer) noexcept {
  return {tutti::extend::view_of(buffer), tutti::extend::owner_of(buffer)};
}

template <class T>
inline constexpr bool is_pinned = false;
template <class T>
inline constexpr bool is_pinned<pinned_buffer<T>> = true;

}  // namespace impl

// Buffers of device operations: device_span<T> and device_buffer<T>.
template <class B>
concept DeviceMemory = tutti::extend::device_memory<B>;
// Buffers that device operations may write.
template <class B>
concept WritableDeviceMemory = DeviceMemory<B> && WritableBuffer<B>;

}  // namespace tutti::gpu
