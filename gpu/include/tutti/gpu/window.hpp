// SPDX-License-Identifier: Apache-2.0
// window: memory on a device of each rank of a communicator, which the other ranks read and write without a receive.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/extend/window_part.hpp>
#include <tutti/gpu/stream.hpp>
#include <tutti/task.hpp>
#include <tutti/window.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace tutti::gpu {

namespace impl {
class device_window;
using window_ptr = std::shared_ptr<device_window>;
// Tells the ranks where each one's memory is. Each has completed a flush of the signals at all others.
task<window_ptr> open_window(communicator among, extend::window_ref signals, view mine,
                             int number_of_signals);
// Waits until the device has finished this rank's copies.
void end_copies(device_window& w) noexcept;
extend::call call_on(const window_ptr& w, extend::operation_kind kind, view local, int rank,
                     std::size_t offset, int number, std::uint64_t value, const stream& after,
                     call_site where);
}  // namespace impl

// A tutti::window (tutti/window.hpp) whose memory is a device_buffer, from communicator::window.
//
//   tutti::gpu::window w = co_await world.window(field);         // a device_buffer
//   co_await w.put_signal(border, right, 0, from_left, stream);  // after the work on `stream`; then the signal
//   co_await w.wait_signal(from_left, [&](std::uint64_t n) { return n >= step; });
//
// The ranks are on one host and use shm, and gpu::open was called. They share a device; or they are processes with
// devices of CUDA that read each other's memory. One that cannot reach another's memory fails the call on all ranks with
// errc::not_supported, which says what to do.
//
// An operation starts when its stream has passed the work on it at that moment. The loop sees that, and has the device
// copy. Later work on the stream does not wait for the operation: await it, or use stream::wait or stream::follow.
// A put completes when the data are in the other rank's memory, so there is no flush. put_signal then adds to the signal;
// a request's stream waits for the data only. Device work that is enqueued once a signal has been seen finds the data of
// its put_signal, and those of puts that the sender had completed before. A put_signal of an empty span signals when
// the stream has passed its work. To make a stream wait for a signal, close it (stream::close), and open the gate when the
// wait is over. Nothing else is ordered, and what overlaps races.
//
// Buffers, errors and cancellation are as of tutti::window, with these differences. A copy that the device has begun is
// finished, though the operation ends early; memory given as a device_span must stay valid until then. Dropping the window
// waits for this rank's copies; a device that is stuck holds it up for 20 s. The buffer's memory stays allocated until
// ranks of other processes have dropped theirs. It is never freed if one of them fails, or the communicator fails or ends,
// before. Make and drop a window while no gate is closed.
// Cost: a copy on a stream of the window's, and two turns of the loop. No allocation in steady state.
template <class T>
class window : tutti::window<T> {
  using signals = tutti::window<T>;
  using kind = extend::operation_kind;

 public:
  // A handle without a window.
  window() noexcept = default;
  window(device_buffer<T> mine, impl::window_ptr state, signals has_them) noexcept
      : signals(std::move(has_them)), mine_(std::move(mine)), state_(std::move(state)) {}
  window(window&&) noexcept = default;
  window& operator=(window&& other) noexcept {
    signals::operator=(std::move(other));
    std::swap(mine_, other.mine_);
    std::swap(state_, other.state_);
    return *this;
  }
  ~window() {
    if (!state_) return;
    impl::end_copies(*state_);
    signals::operator=(signals());  // ends what is pending, and waits for the others' copies
  }
  explicit operator bool() const noexcept { return state_ != nullptr; }
  // This rank's memory.
  device_span<T> local() noexcept { return mine_; }

  // Writes `data` to the window of `rank`, from element `offset` on.
  template <DeviceMemory B>
  tutti::operation<> put(const B& data, int rank, std::size_t offset, const stream& after,
                         call_site where = call_site::current()) const {
    return on(kind::put, data, rank, offset, any_tag, 0, after, where);
  }
  // Writes `data`, then adds 1, or `value`, to signal `number` of `rank`.
  template <DeviceMemory B>
  tutti::operation<> put_signal(const B& data, int rank, std::size_t offset, int number, const stream& after,
                                call_site where = call_site::current()) const {
    return on(kind::put_signal, data, rank, offset, number, 1, after, where);
  }
  template <DeviceMemory B>
  tutti::operation<> put_signal(const B& data, int rank, std::size_t offset, int number, std::uint64_t value,
                                const stream& after, call_site where = call_site::current()) const {
    return on(kind::put_signal, data, rank, offset, number, value, after, where);
  }
  // Reads as many elements as `data` has from the window of `rank`, from element `offset` on.
  template <WritableDeviceMemory B>
  tutti::operation<> get(const B& data, int rank, std::size_t offset, const stream& after,
                         call_site where = call_site::current()) const {
    return on(kind::get, data, rank, offset, any_tag, 0, after, where);
  }

  using signals::compare_exchange, signals::fetch_add, signals::signal, signals::wait_signal;

 private:
  template <class B>
  tutti::operation<> on(kind of, const B& data, int rank, std::size_t offset, int number, std::uint64_t value,
                        const stream& after, call_site where) const {
    static_assert(std::is_same_v<element_of_t<B>, T>,
                  "tutti: the buffer needs the element type of the window");
    return tutti::operation<>(
        impl::call_on(state_, of, impl::view_of(data), rank, offset, number, value, after, where));
  }

  device_buffer<T> mine_;
  impl::window_ptr state_;
};

// communicator::window of a device_buffer, which the window keeps. Collective.
template <class T>
task<window<T>> window_of(communicator c, device_buffer<T> mine, window_options how) {
  const communicator among = co_await c.duplicate();
  tutti::window<T> signals = co_await among.window(std::span<T>(), how);
  for (int r = 0; r < among.size(); ++r) co_await signals.flush(r);
  impl::window_ptr state =
      co_await impl::open_window(among, extend::reference_to(signals), impl::view_of(mine), how.signals);
  co_return window<T>(std::move(mine), std::move(state), std::move(signals));
}

}  // namespace tutti::gpu
