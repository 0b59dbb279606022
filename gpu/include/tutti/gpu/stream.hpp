// SPDX-License-Identifier: Apache-2.0
// stream: a queue of work on a device, and the ways in which it and the host wait for each other.
#pragma once

#include <tutti/buffer.hpp>
#include <tutti/extend/call.hpp>
#include <tutti/gpu/device.hpp>
#include <tutti/operation.hpp>
#include <tutti/request.hpp>
#include <tutti/task.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace tutti::gpu {

namespace impl {
class gate_word;
class stream_state;
}  // namespace impl

// A gate that stops a stream until it is opened. It opens by itself when it is destroyed, when the device
// fails, and when the device's last handle goes.
class gate {
 public:
  gate() noexcept = default;
  explicit gate(std::shared_ptr<impl::gate_word> word) noexcept : word_(std::move(word)) {}
  gate(gate&&) noexcept = default;
  gate& operator=(gate&& other) noexcept {
    open();
    word_ = std::move(other.word_);
    return *this;
  }
  ~gate() { open(); }
  // Opens the gate, on any thread. A second call does nothing.
  void open() noexcept;
  // Whether the gate has been opened.
  bool is_open() const noexcept;

 private:
  std::shared_ptr<impl::gate_word> word_;
};

// An ordered queue of work on a device. A cheap handle: copies mean the same stream. Destroying the last one
// waits until the stream has ended. Used on the loop thread of its device.
class stream : public extend::stream {
 public:
  stream() noexcept = default;
  // Makes a new stream. `urgent` gives its work priority, if the device supports that.
  explicit stream(const device& on, bool urgent = false);
  // Wraps a stream of the program (CUstream or cudaStream_t), which must outlive the handle. Null is
  // rejected: the default stream waits for all others.
  static stream borrow(const device& on, void* native);
  explicit stream(std::shared_ptr<impl::stream_state> state) noexcept : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return state_ != nullptr; }
  // The device of the stream.
  device on() const noexcept;
  // The driver's handle of the stream.
  void* native() const noexcept;

  // Waits until the stream has passed the work on it when the operation starts.
  // Errors: errc::device_failed. errc::timed_out after init_options::timeout. errc::invalid_argument while
  // the stream is being captured.
  // Cancellation: does not affect the stream.
  // Cost: one event record and one word write in the stream, and one load per poll of the loop.
  tutti::operation<> reached() const {
    return tutti::operation<>(part_of_stream(tutti::extend::operation_kind::reached));
  }

  // Makes work enqueued from now on wait for the request, while the host goes on. The request is a copy, or
  // an operation of a communicator on device memory. If that is not yet fully enqueued, a gate closes the
  // stream until the operation completes or fails.
  // Errors: throws errc::not_supported if the device has no gates, or if the stream cannot wait for work of the
  // request's device. Throws the request's error if it has failed. errc::invalid_argument for a request on host
  // memory: await it instead. errc::resources if a gate is needed while NCCL frees a communicator that has failed.
  void wait(const request& r) const;
  // As wait(request), without a gate, so that the program may allocate, free and load kernels at any time.
  // Completes: with true when all of the operation is in the device's streams, and work enqueued in this one from
  // now on waits for it; the operation may be done long after. With false if it fails before: the request says why.
  // Errors: throws errc::invalid_argument, as wait(request) does.
  // Cancellation: does not affect the request, which must live until then.
  task<bool> follow(const request& r) const;
  // Makes work enqueued from now on wait for the work now in `other`, which may be of another device of CUDA's, or
  // another emulated one.
  // Errors: throws errc::not_supported for a stream of another device that this one cannot wait for.
  void wait(const stream& other) const;
  // Closes the stream here: work enqueued from now on waits until the gate opens. Use it on streams of your
  // own and their dependents. Until open(), do not call anything that waits for the whole device (allocating,
  // freeing).
  // Errors: throws errc::not_supported. errc::resources beyond device::set_gate_limit, and while NCCL frees a
  // communicator that has failed.
  gate close() const;

  // ---- copies, after the work in the stream ----
  //
  // The status says how many bytes were moved.
  // Buffers: a pinned_buffer or device_buffer is kept alive. Device memory given as a span must stay valid
  // until the device has finished, as a later reached() shows.
  // Cancellation: the device still finishes a copy that is ended early (when_any, with_timeout, a dropped
  // request).

  // Copies between two places in device memory.
  template <class To, class From>
    requires(WritableDeviceMemory<To> && DeviceMemory<From>)
  tutti::operation<status> copy(const To& to, const From& from) const {
    return moves(tutti::extend::operation_kind::copy, impl::view_of(to), impl::view_of(from));
  }
  // Copies from host to device. Pinned buffers are copied directly. Other memory passes through pinned memory
  // of the library, and may be changed as soon as the operation has started.
  template <class To, class From>
    requires(WritableDeviceMemory<To> && Buffer<From> && !DeviceMemory<From>)
  tutti::operation<status> upload(const To& to, const From& from) const {
    return moves(
        impl::is_pinned<From> ? tutti::extend::operation_kind::copy : tutti::extend::operation_kind::upload,
        impl::view_of(to), impl::view_of(from));
  }
  // Copies from device to host. Ordinary memory is written exactly when the operation completes.
  template <class To, class From>
    requires DeviceMemory<From>
  tutti::operation<status> download(To&& to, const From& from) const {
    using plain = std::remove_cvref_t<To>;
    static_assert(impl::is_pinned<plain> || WritableBuffer<To>,
                  "download needs a writable buffer that outlives it");
    return moves(impl::is_pinned<plain> ? tutti::extend::operation_kind::copy
                                        : tutti::extend::operation_kind::download,
                 impl::view_of(to), impl::view_of(from));
  }
  // Sets every byte of `to` to `value`.
  template <class To>
    requires WritableDeviceMemory<To>
  tutti::operation<status> fill(const To& to, std::byte value) const {
    return moves(tutti::extend::operation_kind::fill, impl::view_of(to), impl::view_of(to), value);
  }

  // Sets to[i] = from[i] * factor by a kernel, between any two of float, double, float16 and bfloat16. The
  // types may be equal, and then also the memory. Rounds once; a NaN becomes the positive quiet NaN.
  // Errors: errc::not_supported if the device has no kernels.
  template <class To, class From>
    requires(WritableDeviceMemory<To> && DeviceMemory<From>)
  tutti::operation<status> convert(const To& to, const From& from, double factor = 1) const {
    return moves(tutti::extend::operation_kind::convert, impl::view_of(to), impl::view_of(from), {}, factor);
  }

  const std::shared_ptr<impl::stream_state>& state() const noexcept { return state_; }
  extend::part_ref part_of(std::shared_ptr<const void> in,
                           std::shared_ptr<const void> out = {}) const override;

 private:
  tutti::extend::call part_of_stream(tutti::extend::operation_kind kind, impl::view to = {},
                                     impl::view from = {}, std::byte value = {}, double factor = 1) const;
  tutti::operation<status> moves(tutti::extend::operation_kind kind, impl::view to, impl::view from,
                                 std::byte value = {}, double factor = 1) const;

  std::shared_ptr<impl::stream_state> state_;
};

}  // namespace tutti::gpu
