// SPDX-License-Identifier: Apache-2.0
// How coroutines are resumed: nested a bounded number of calls deep, then from a list.
//
// Symmetric transfer needs a tail call, which g++ makes neither at -O0 nor under AddressSanitizer: a long
// chain of awaits then overflows the stack. Here a child is resumed by an ordinary call from its parent's
// await_suspend (which answers false when the child finished at once), and past `depth_limit` calls the
// handle goes to a list that the outermost call works off. Stack use is bounded whatever the length or the
// depth of the chain.
#pragma once

#include <coroutine>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::detail {

struct flow {
  static constexpr unsigned depth_limit = 48;

  const void* starting = nullptr;  // the promise being run inline by its parent's await_suspend
  unsigned depth = 0;
  std::vector<std::coroutine_handle<>>* deferred = nullptr;
};

// This thread's flow. One per thread: coroutines that resume each other are on one thread.
inline flow& this_flow() noexcept {
  static constinit thread_local flow instance;
  return instance;
}

// Puts `h` on the list of those that wait for the outermost call of this thread.
void defer(flow& f, std::coroutine_handle<> h) noexcept;

inline void run_deferred(flow& f) {
  while (f.deferred != nullptr && !f.deferred->empty()) {
    const std::coroutine_handle<> next = f.deferred->back();
    f.deferred->pop_back();
    next.resume();
  }
}

// Resumes `h`, now or, when this thread is many calls deep already, as soon as it is back at the outermost
// one. The caller must not touch anything that `h` may destroy after this call.
inline void resume_bounded(std::coroutine_handle<> h) {
  flow& f = this_flow();
  if (f.depth >= flow::depth_limit) return defer(f, h);
  const void* outer = std::exchange(f.starting, nullptr);
  ++f.depth;
  h.resume();
  if (f.depth == 1) run_deferred(f);
  --f.depth;
  f.starting = outer;
}

// Destroys the frame of `h`, which may be among the handles that wait for the outermost call.
inline void destroy_frame(std::coroutine_handle<> h) noexcept {
  if (!h.done()) {
    const flow& f = this_flow();
    if (f.deferred != nullptr && !f.deferred->empty()) std::erase(*f.deferred, h);
  }
  h.destroy();
}

// Runs the child coroutine `h`, whose promise is at `promise`, on behalf of its awaiting parent. True: it has
// finished already, and the parent goes on without having been suspended.
inline bool run_child(const void* promise, std::coroutine_handle<> h) {
  flow& f = this_flow();
  if (f.depth >= flow::depth_limit) {
    defer(f, h);
    return false;
  }
  const void* outer = std::exchange(f.starting, promise);
  ++f.depth;
  h.resume();
  const bool finished = f.starting == nullptr;
  f.starting = nullptr;  // what the list resumes is no longer inline in the parent
  if (f.depth == 1) run_deferred(f);
  --f.depth;
  f.starting = outer;
  return finished;
}

// Called when the coroutine with this promise has finished: true when its parent is in run_child above us on
// the stack and so must not be resumed.
inline bool finished_inline(const void* promise) noexcept {
  flow& f = this_flow();
  if (f.starting != promise) return false;
  f.starting = nullptr;
  return true;
}

// Coroutine frames from size-classed lists of this thread: no heap allocation in steady state.
void* allocate_frame(std::size_t bytes);
void release_frame(void* frame, std::size_t bytes) noexcept;

// The same memory for what else is made again and again.
template <class T>
struct frame_allocator {
  static_assert(alignof(T) <= alignof(std::max_align_t));
  using value_type = T;
  frame_allocator() noexcept = default;
  template <class U>
  frame_allocator(const frame_allocator<U>&) noexcept {}
  T* allocate(std::size_t n) { return static_cast<T*>(allocate_frame(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { release_frame(p, n * sizeof(T)); }
  friend bool operator==(const frame_allocator&, const frame_allocator&) noexcept { return true; }
};
template <class T, class... Parts>
std::shared_ptr<T> make_recycled(Parts&&... parts) {
  return std::allocate_shared<T>(frame_allocator<T>(), std::forward<Parts>(parts)...);
}

}  // namespace tutti::detail
