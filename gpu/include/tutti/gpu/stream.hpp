// SPDX-License-Identifier: Apache-2.0
// stream: a queue of a device, and the ways in which it and the host wait for each other.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/operation.hpp>
#include <tutti/request.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tutti::gpu {

namespace detail {
class gate_word;
class stream_state;
}  // namespace detail

// A stream stops at a closed gate until it is opened. Opens by itself when it is destroyed, by whatever path,
// when the device fails and when its last handle goes.
class gate {
 public:
  gate() noexcept = default;
  explicit gate(std::shared_ptr<detail::gate_word> word) noexcept : word_(std::move(word)) {}
  gate(gate&&) noexcept = default;
  gate& operator=(gate&& other) noexcept {
    open();
    word_ = std::move(other.word_);
    return *this;
  }
  ~gate() { open(); }
  void open() noexcept;  // from any thread; a second time does nothing
  bool is_open() const noexcept;

 private:
  std::shared_ptr<detail::gate_word> word_;
};

// Work on a device, in order. A cheap handle: copies mean the same stream, which is destroyed with the last
// of them, after it has ended (waits for it). Used on the loop thread of its device.
class stream {
 public:
  stream() noexcept = default;
  // A stream of its own. `urgent`: before the work of others, where the device can.
  explicit stream(const device& on, bool urgent = false);
  // One that the program has made: CUstream and cudaStream_t. Must outlive the handle. Null is not taken: the
  // default stream waits for all others.
  static stream borrow(const device& on, void* native);
  explicit stream(std::shared_ptr<detail::stream_state> state) noexcept : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  device on() const noexcept;
  void* native() const noexcept;

  // Completes when the stream has got to where it is when the operation starts. Errors: errc::device_failed;
  // errc::timed_out after init_options::timeout; errc::invalid_argument while the stream is being captured.
  // Ending it early changes nothing for the stream. Cost: one event record and one word write in the
  // stream, one load per look of the loop.
  tutti::operation<> reached() const {
    return tutti::operation<>(part_of_stream(tutti::detail::operation_kind::reached));
  }

  // What is enqueued from now on waits for the request, and the host goes on: of a copy, or of an operation of a
  // communicator on memory of a device. When the device has not all of that yet, the stream is closed by a gate that
  // opens when the operation is done or has failed: errc::not_supported where the device has no gates. Of one that has
  // failed: throws its error. errc::invalid_argument for a request of memory of the host: await it.
  void wait(const request& r) const;
  // What is enqueued from now on waits for what is in `other` now.
  void wait(const stream& other) const;
  // Closes it here: what is enqueued from now on waits until the gate opens. For streams of one's own, and
  // what depends on them; nothing that waits for the whole device (allocating, freeing) may come before
  // open(). errc::not_supported, or errc::resources beyond device::set_gate_limit.
  gate close() const;

  // ---- copies: after what is in the stream ----
  //
  // The status says how many bytes were moved. One that is ended early (when_any, with_timeout, a request that goes)
  // the device finishes for nobody; device memory that was given as a span must stay until the device has passed it
  // (a later reached() tells), buffers stay by themselves.

  template <class To, class From>
    requires(WritableDeviceMemory<To> && DeviceMemory<From>)
  tutti::operation<status> copy(const To& to, const From& from) const {
    return transfer(tutti::detail::operation_kind::copy, detail::view_of(to), detail::view_of(from));
  }
  // Host to device. Pinned buffers directly, everything else through pinned memory of the library: it may be
  // changed as soon as the operation has started.
  template <class To, class From>
    requires(WritableDeviceMemory<To> && Buffer<From> && !DeviceMemory<From>)
  tutti::operation<status> upload(const To& to, const From& from) const {
    return transfer(
        detail::is_pinned<From> ? tutti::detail::operation_kind::copy : tutti::detail::operation_kind::upload,
        detail::view_of(to), host_view(from));
  }
  // Device to host. Ordinary memory is written when the operation completes, and only then.
  template <class To, class From>
    requires DeviceMemory<From>
  tutti::operation<status> download(To&& to, const From& from) const {
    using plain = std::remove_cvref_t<To>;
    static_assert(detail::is_pinned<plain> || WritableBuffer<To>,
                  "download needs a writable buffer that outlives it");
    return transfer(detail::is_pinned<plain> ? tutti::detail::operation_kind::copy
                                             : tutti::detail::operation_kind::download,
                    host_view(to), detail::view_of(from));
  }
  template <class To>
    requires WritableDeviceMemory<To>
  tutti::operation<status> fill(const To& to, std::byte value) const {
    return transfer(tutti::detail::operation_kind::fill, detail::view_of(to), detail::view_of(to), value);
  }

  // to[i] = from[i] * factor, by a kernel, between any two of float, double, float16 and bfloat16, each also
  // to itself, where both may be one place. Rounded once; a NaN becomes the positive quiet one.
  // errc::not_supported where the device has no kernels.
  template <class To, class From>
    requires(WritableDeviceMemory<To> && DeviceMemory<From>)
  tutti::operation<status> convert(const To& to, const From& from, double factor = 1) const {
    return conversion(detail::view_of(to), detail::view_of(from), factor);
  }

  const std::shared_ptr<detail::stream_state>& state() const noexcept { return state_; }

 private:
  template <class B>
  static detail::view host_view(B& buffer) {
    if constexpr (detail::is_pinned<std::remove_const_t<B>>) {
      return detail::view_of(buffer);
    } else {
      return {tutti::detail::view_of(buffer), nullptr};
    }
  }
  tutti::detail::call part_of_stream(tutti::detail::operation_kind kind, detail::view to = {},
                                     detail::view from = {}, std::byte value = {}, double factor = 1) const;
  tutti::operation<status> transfer(tutti::detail::operation_kind kind, detail::view to, detail::view from,
                                    std::byte value = {}) const;
  tutti::operation<status> conversion(detail::view to, detail::view from, double factor) const;

  std::shared_ptr<detail::stream_state> state_;
};

using work [[deprecated("write tutti::request")]] = request;

// For tutti::communicator: of an operation after what is in `after`, on this memory.
inline tutti::detail::part_ref device_part_of(const stream& after) { return device_part_of(after, {}, {}); }
template <DeviceMemory I>
tutti::detail::part_ref device_part_of(const stream& after, const I& in) {
  return device_part_of(after, detail::view_of(in).keep, {});
}
template <DeviceMemory I, DeviceMemory B>
tutti::detail::part_ref device_part_of(const stream& after, const I& in, const B& out) {
  return device_part_of(after, detail::view_of(in).keep, detail::view_of(out).keep);
}

}  // namespace tutti::gpu
