// SPDX-License-Identifier: Apache-2.0
// Memory of devices: who owns it, what kind it is, and spans of it that no host code can mistake for its own.
#pragma once

#include <tutti/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace tutti::gpu {

class device;

enum class memory_kind : std::uint8_t {
  host,     // ordinary memory: copies from and to it pass through pinned memory of the library
  pinned,   // host memory that the device reads and writes by itself
  device,   // the host must not touch it
  managed,  // both may
  unknown
};
const char* name_of(memory_kind kind) noexcept;

// What a pointer is, as the device's driver knows it.
struct memory_info {
  memory_kind kind = memory_kind::host;
  int device = -1;             // ordinal; -1: of no device
  const void* base = nullptr;  // of the allocation
  std::size_t bytes = 0;       // of the allocation
  bool shareable = false;      // may be opened by another process (legacy IPC)
  std::uint64_t id = 0;        // of the allocation, never reused; 0: not known
};

// `size` elements that a device can reach. Does not own them, and cannot be dereferenced.
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

  constexpr T* data() const noexcept { return data_; }  // for kernels
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr device_span subspan(std::size_t offset, std::size_t count) const noexcept {
    return {data_ + offset, count};
  }
  constexpr device_span first(std::size_t count) const noexcept { return {data_, count}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

// Memory of a device or for it. Freed when the last operation that uses it has passed on the device.
struct allocation {
  void* data = nullptr;
};
std::shared_ptr<allocation> allocate(const device& on, std::size_t bytes, memory_kind kind);

// What keeps it alive, where something does.
struct view : tutti::detail::buffer_view {
  std::shared_ptr<const void> keep;
};

}  // namespace detail

// Owns memory of a device. Operations that are given the buffer (rather than a span of it) keep the memory
// until the device has passed them, also when the buffer goes and when the operation was cancelled.
template <class T>
class device_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using device_span_type = device_span<T>;

  device_buffer() noexcept = default;
  // `size` elements, not initialised. On the loop thread of `on`. Throws errc::resources. Allocating may wait
  // for the device: not while it works.
  device_buffer(const device& on, std::size_t size)
      : memory_(detail::allocate(on, size * sizeof(T), memory_kind::device)), size_(size) {}

  device_span<T> span() noexcept { return {data(), size_}; }
  device_span<const T> span() const noexcept { return {data(), size_}; }
  operator device_span<T>() noexcept { return span(); }
  operator device_span<const T>() const noexcept { return span(); }
  T* data() const noexcept { return memory_ ? static_cast<T*>(memory_->data) : nullptr; }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  const std::shared_ptr<detail::allocation>& memory() const noexcept { return memory_; }

 private:
  std::shared_ptr<detail::allocation> memory_;
  std::size_t size_ = 0;
};

// Owns host memory that copies from and to the device go to directly. Ordinary memory to the host.
template <class T>
class pinned_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;

  pinned_buffer() noexcept = default;
  pinned_buffer(const device& on, std::size_t size)
      : memory_(detail::allocate(on, size * sizeof(T), memory_kind::pinned)), size_(size) {}

  T* data() const noexcept { return memory_ ? static_cast<T*>(memory_->data) : nullptr; }
  std::size_t size() const noexcept { return size_; }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size_; }
  T& operator[](std::size_t i) const noexcept { return data()[i]; }
  const std::shared_ptr<detail::allocation>& memory() const noexcept { return memory_; }

 private:
  std::shared_ptr<detail::allocation> memory_;
  std::size_t size_ = 0;
};

namespace detail {

template <class T>
view view_of(device_span<T> s) noexcept {
  return {tutti::detail::view_of(s), nullptr};
}
template <class T>
view view_of(const device_buffer<T>& b) noexcept {
  return {tutti::detail::view_of(b), b.memory()};
}
template <class T>
view view_of(const pinned_buffer<T>& b) noexcept {
  return {tutti::detail::view_of(b), b.memory()};
}

template <class T>
inline constexpr bool is_pinned = false;
template <class T>
inline constexpr bool is_pinned<pinned_buffer<T>> = true;

}  // namespace detail

// What device operations take: device_span<T>, device_buffer<T>.
template <class B>
concept DeviceMemory = tutti::detail::device_memory<B>;
template <class B>
concept WritableDeviceMemory = DeviceMemory<B> && WritableBuffer<B>;

}  // namespace tutti::gpu
