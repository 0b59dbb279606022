// SPDX-License-Identifier: Apache-2.0
#include "base/heap_use.hpp"

#include <algorithm>
#include <new>
#include <tutti/detail/flow.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define TUTTI_RECYCLE_FRAMES 0  // a recycled frame would hide a use after free
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TUTTI_RECYCLE_FRAMES 0
#endif
#endif
#ifndef TUTTI_RECYCLE_FRAMES
#define TUTTI_RECYCLE_FRAMES 1
#endif

namespace tutti::detail {
namespace {

constexpr std::size_t class_bytes = 64;
constexpr std::size_t classes = 66;          // frames below 4224 bytes are recycled
constexpr std::size_t kept_per_class = 256;  // beyond that, memory is returned after a burst

struct free_frame {
  free_frame* next;
};

struct frame_lists {
  free_frame* first[classes] = {};
  std::size_t kept[classes] = {};
  ~frame_lists() {
    for (auto& list : first)
      while (list != nullptr) ::operator delete(std::exchange(list, list->next));
  }
};

// A plain pointer beside the owner keeps the hot path free of the check for dynamic initialisation.
constinit thread_local frame_lists* lists = nullptr;

frame_lists* make_lists() {
  struct owner {
    frame_lists instance;
    ~owner() { lists = nullptr; }
  };
  static thread_local owner o;
  return lists = &o.instance;
}

}  // namespace

void deferred_list::erase_taken() noexcept {
  handles.erase(handles.begin(), handles.begin() + static_cast<std::ptrdiff_t>(next));
  next = 0;
}

void deferred_list::forget(std::coroutine_handle<> h) noexcept {
  handles.erase(std::remove(handles.begin() + static_cast<std::ptrdiff_t>(next), handles.end(), h),
                handles.end());
  if (outer != nullptr) outer->forget(h);
}

void defer(flow& f, std::coroutine_handle<> h) noexcept {
  // Made on first use, freed at the thread's exit.
  struct owner {
    flow& of;
    deferred_list list;
    ~owner() { of.deferred = nullptr; }
  };
  if (f.deferred == nullptr) {
    static thread_local owner o{f, {}};
    f.deferred = &o.list;
  }
  f.deferred->handles.push_back(h);
}

void resume_deferred(flow& f) {
  while (f.deferred != nullptr && !f.deferred->empty()) f.deferred->take().resume();
}

void* allocate_frame(std::size_t bytes) {
  const std::size_t index = (bytes + class_bytes - 1) / class_bytes;
  if (TUTTI_RECYCLE_FRAMES && index < classes) {
    frame_lists* l = lists;
    if (l != nullptr && l->first[index] != nullptr) {
      --l->kept[index];
      return std::exchange(l->first[index], l->first[index]->next);
    }
    bytes = index * class_bytes;
  }
  void* const frame = ::operator new(bytes);
  base::count_heap_use(bytes);
  return frame;
}

void release_frame(void* frame, std::size_t bytes) noexcept {
  const std::size_t index = (bytes + class_bytes - 1) / class_bytes;
  if (TUTTI_RECYCLE_FRAMES && index < classes) {
    frame_lists* l = lists != nullptr ? lists : make_lists();
    if (l->kept[index] < kept_per_class) {
      ++l->kept[index];
      l->first[index] = new (frame) free_frame{l->first[index]};
      return;
    }
  }
  ::operator delete(frame);
}

}  // namespace tutti::detail
