// SPDX-License-Identifier: Apache-2.0
// object_pool: objects that are used again. It has as many as were ever in use at a time.
#pragma once

#include "base/heap_use.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::base {

template <class T>
class object_pool {
 public:
  // As its last user left it.
  T& take() {
    if (free_.empty()) [[unlikely]]
      grow();
    T& taken = *free_.back();
    free_.pop_back();
    return taken;
  }
  void give_back(T& object) noexcept { free_.push_back(&object); }  // take() reserved the capacity
  std::size_t in_use() const noexcept { return all_.size() - free_.size(); }

 private:
  [[gnu::noinline]] void grow() {
    free_.reserve(all_.size() + 1);
    all_.push_back(std::make_unique<T>());
    count_heap_use(sizeof(T));
    free_.push_back(all_.back().get());
  }

  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> free_;
};

}  // namespace tutti::base
