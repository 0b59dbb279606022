// SPDX-License-Identifier: Apache-2.0
// A doubly linked list whose links are in the elements: no allocation, O(1) removal of an element by
// reference.
#pragma once

#include <cassert>
#include <cstddef>

namespace tutti::base {

// Derive from list_hook<Tag> once for each list that an element can be in at a time.
template <class Tag>
struct list_hook {
  list_hook* next = nullptr;
  list_hook* previous = nullptr;

  list_hook() noexcept = default;
  list_hook(const list_hook&) = delete;
  list_hook& operator=(const list_hook&) = delete;
  bool linked() const noexcept { return next != nullptr; }
  // Takes the element out of the list it is in; does nothing if it is in none.
  void unlink() noexcept {
    if (!linked()) return;
    previous->next = next;
    next->previous = previous;
    next = previous = nullptr;
  }
};

template <class T, class Tag>
class intrusive_list {
  using hook = list_hook<Tag>;

 public:
  intrusive_list() noexcept { head_.next = head_.previous = &head_; }
  intrusive_list(const intrusive_list&) = delete;
  intrusive_list& operator=(const intrusive_list&) = delete;
  // Elements still inside are unlinked, not destroyed.
  ~intrusive_list() {
    while (!empty()) pop_front();
    head_.next = head_.previous = nullptr;
  }

  bool empty() const noexcept { return head_.next == &head_; }
  // `place` is an element of a list.
  static void insert_before(hook& place, T& element) noexcept {
    hook& h = element;
    assert(!h.linked());
    h.previous = place.previous;
    h.next = &place;
    place.previous->next = &h;
    place.previous = &h;
  }
  void push_back(T& element) noexcept { insert_before(head_, element); }
  void push_front(T& element) noexcept { insert_before(*head_.next, element); }
  T* front() const noexcept { return empty() ? nullptr : element_of(head_.next); }
  T* back() const noexcept { return empty() ? nullptr : element_of(head_.previous); }
  T* pop_front() noexcept {
    if (empty()) return nullptr;
    T* element = element_of(head_.next);
    static_cast<hook*>(element)->unlink();
    return element;
  }
  // The element after `element`, or nullptr at the end.
  T* after(const T& element) const noexcept {
    hook* next = static_cast<const hook&>(element).next;
    return next == &head_ ? nullptr : element_of(next);
  }
  // The element before `element`, or nullptr at the beginning.
  T* before(const T& element) const noexcept {
    hook* previous = static_cast<const hook&>(element).previous;
    return previous == &head_ ? nullptr : element_of(previous);
  }
  // Calls f(element) for each, in order. f may take out the element that it gets, but no other.
  template <class F>
  void for_each(const F& f) const {
    for (T* element = front(); element != nullptr;) {
      T* const next = after(*element);
      f(*element);
      element = next;
    }
  }
  // Moves all of `other`, in order, to the end of this list.
  void splice_back(intrusive_list& other) noexcept {
    if (other.empty()) return;
    hook* first = other.head_.next;
    hook* last = other.head_.previous;
    other.head_.next = other.head_.previous = &other.head_;
    first->previous = head_.previous;
    last->next = &head_;
    head_.previous->next = first;
    head_.previous = last;
  }

 private:
  static T* element_of(hook* h) noexcept { return static_cast<T*>(h); }
  mutable hook head_;
};

}  // namespace tutti::base
