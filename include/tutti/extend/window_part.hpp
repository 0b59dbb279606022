// SPDX-License-Identifier: Apache-2.0
// window_part: operations on windows of memory that only an executor accesses. Beside that memory each rank has a
// tutti::window without elements, on whose communicator the operations run: it has the signals, its drop waits for visits,
// and it ends the operations when a rank dies or this rank drops it.
#pragma once

#include <tutti/extend/executor_part.hpp>
#include <tutti/extend/version.hpp>
#include <tutti/operation.hpp>
#include <tutti/window.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace tutti::extend::inline v1 {

using window_ref = detail::window_ref;
// The state behind a handle.
// Errors: throws errc::invalid_argument for an empty one.
template <class T>
window_ref reference_to(const window<T>& w) {
  return static_cast<const detail::window_access&>(*w.flush(0).what().part).window;
}
inline const communicator_ref& communicator_of(const window_ref& w) noexcept {
  return detail::communicator_of(*w);
}

// Carries out a put, put_signal or get on the communicator of `window`.
class window_part : public executor_part {
 public:
  explicit window_part(window_ref w) noexcept : window(std::move(w)) {}
  const window_ref window;

 protected:
  // Adds `value` to the signal that a put_signal names.
  operation<std::uint64_t> add_to_signal(const call& put_signal, std::uint64_t value) const {
    call adding(operation_kind::fetch_add, put_signal.comm, put_signal.where);
    adding.peer = put_signal.peer;
    adding.tag = put_signal.tag;
    adding.part = part_ref(new detail::window_access(window, 0, value));
    return operation<std::uint64_t>(std::move(adding));
  }
};

// An access to the memory of a rank. When that rank drops its window, it waits until all visits have ended, for a second
// at most.
class window_visit {
 public:
  // An operation on that rank, such as a flush, has completed before.
  // Errors: throws errc::peer_left if the rank has dropped its window; errc::not_supported if its signals are not in
  // memory that this rank shares.
  window_visit(const window_ref& w, int rank);
  ~window_visit() { end(); }
  window_visit(const window_visit&) = delete;
  window_visit& operator=(const window_visit&) = delete;
  void end() noexcept {
    if (visitors_ != nullptr) std::exchange(visitors_, nullptr)->fetch_sub(1, std::memory_order_release);
  }

 private:
  std::atomic<std::uint32_t>* visitors_;
};

}  // namespace tutti::extend::inline v1
