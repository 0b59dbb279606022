// SPDX-License-Identifier: Apache-2.0
// How coroutines are resumed: by nested calls up to a fixed depth, then from a list.
//
// Symmetric transfer needs a tail call, which g++ makes neither at -O0 nor under AddressSanitizer. So the
// parent's await_suspend resumes the child by an ordinary call, and returns false if the child finished at
// once. Beyond `depth_limit` nested calls the handle goes to a list, which the outermost call resumes: stack
// use is bounded for chains of any length and depth.
#pragma once

#include <tutti/detail/sole_owner.hpp>

#include <coroutine>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tutti::detail {

// Coroutines to resume, first come first served.
struct deferred_list {
  static constexpr std::size_t most_taken = 64;  // before their places are used again

  std::vector<std::coroutine_handle<>> handles;
  std::size_t next = 0;
  deferred_list* outer = nullptr;  // of the coroutine that runs an io_context (own_flow)

  bool empty() const noexcept { return next == handles.size(); }
  std::coroutine_handle<> take() noexcept {
    const std::coroutine_handle<> first = handles[next++];
    if (empty() || next == most_taken) erase_taken();
    return first;
  }
  void erase_taken() noexcept;
  void forget(std::coroutine_handle<> h) noexcept;
};

// Base of the members of a list, which they leave when they are destroyed. The newest member is the first.
template <class Member>
class list_member {
 public:
  list_member() noexcept = default;
  list_member(const list_member&) = delete;
  list_member& operator=(const list_member&) = delete;
  ~list_member() { leave(); }

  bool joined() const noexcept { return place_ != nullptr; }
  Member* next() const noexcept { return next_; }
  void join(Member*& first) noexcept {
    leave();
    next_ = first;
    if (next_ != nullptr) next_->list_member::place_ = &next_;
    place_ = &first;
    first = static_cast<Member*>(this);
  }
  void leave() noexcept {
    if (place_ == nullptr) return;
    *place_ = next_;
    if (next_ != nullptr) next_->list_member::place_ = place_;
    place_ = nullptr;
    next_ = nullptr;
  }

 private:
  Member** place_ = nullptr;  // the pointer that points here
  Member* next_ = nullptr;
};

struct flow {
  static constexpr unsigned depth_limit = 48;

  const void* starting = nullptr;  // the promise whose coroutine its parent's await_suspend is running
  unsigned depth = 0;
  deferred_list* deferred = nullptr;
};

// The flow of this thread. One per thread suffices: coroutines that resume each other run on one thread.
inline flow& this_flow() noexcept {
  static constinit thread_local flow instance;
  return instance;
}

// Puts `h` on the list of those that wait for the outermost call of this thread.
void defer(flow& f, std::coroutine_handle<> h) noexcept;

void resume_deferred(flow& f);  // not inline, so that run_child() is
inline void run_deferred(flow& f) {
  if (f.deferred != nullptr && !f.deferred->empty()) resume_deferred(f);
}

// Runs the child coroutine `h` with the promise at `promise` for its awaiting parent. Returns true if the
// child has finished, so that the parent continues without being suspended.
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
  f.starting = nullptr;  // coroutines resumed from the list do not run inline in the parent
  if (f.depth == 1) run_deferred(f);
  --f.depth;
  f.starting = outer;
  return finished;
}

// Resumes `h` now, or from the outermost call if this thread is too deep. `h` may destroy the caller.
inline void resume_bounded(std::coroutine_handle<> h) { run_child(nullptr, h); }

// Resumes `h` when no other coroutine of this thread runs any more: now, or from the outermost call. For one
// coroutine that wakes another, which may then destroy the first.
inline void resume_soon(std::coroutine_handle<> h) {
  flow& f = this_flow();
  if (f.depth == 0) return resume_bounded(h);
  defer(f, h);
}

// Lets resume_soon() resume nothing before its end. For code outside coroutines that wakes several.
class resume_at_end {
 public:
  resume_at_end() noexcept { ++flow_.depth; }
  resume_at_end(const resume_at_end&) = delete;
  ~resume_at_end() {
    if (flow_.depth == 1) run_deferred(flow_);
    --flow_.depth;
  }

 private:
  flow& flow_ = this_flow();
};

// The flow of a thread while it runs an io_context. If a coroutine runs it, its own flow goes on afterwards.
class own_flow {
 public:
  own_flow() noexcept : outer_(std::exchange(this_flow(), flow{nullptr, 0, &list_})) {
    list_.outer = outer_.deferred;
  }
  own_flow(const own_flow&) = delete;
  ~own_flow() { this_flow() = outer_; }

 private:
  deferred_list list_;
  const flow outer_;
};

// Takes `h` off the list.
inline void forget_resumption(std::coroutine_handle<> h) noexcept {
  const flow& f = this_flow();
  if (f.deferred != nullptr) f.deferred->forget(h);
}

// Destroys the frame of `h`, also if `h` is on the list.
inline void destroy_frame(std::coroutine_handle<> h) noexcept {
  if (!h.done()) forget_resumption(h);
  h.destroy();
}

// Owns the frame of a coroutine.
template <class Promise>
struct frame_destroyer {
  void operator()(std::coroutine_handle<Promise> h) const noexcept { destroy_frame(h); }
};
template <class Promise>
using owned_frame = sole_owner<std::coroutine_handle<Promise>, frame_destroyer<Promise>>;

// Called when the coroutine with this promise has finished. Returns true if its parent is in run_child
// further up the stack, and so must not be resumed.
inline bool finished_inline(const void* promise) noexcept {
  flow& f = this_flow();
  if (f.starting != promise) return false;
  f.starting = nullptr;
  return true;
}

// Allocates coroutine frames from size-classed lists of this thread: no heap allocation in steady state.
void* allocate_frame(std::size_t bytes);
void release_frame(void* frame, std::size_t bytes) noexcept;

// An allocator of the same memory for other objects that are made again and again.
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
