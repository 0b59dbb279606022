// SPDX-License-Identifier: Apache-2.0
// scope_exit: calls a function when its scope ends, in whatever way.
#pragma once

#include <utility>

namespace tutti::gpu::detail {

template <class F>
class scope_exit {
 public:
  explicit scope_exit(F f) noexcept : f_(std::move(f)) {}
  scope_exit(const scope_exit&) = delete;
  scope_exit& operator=(const scope_exit&) = delete;
  ~scope_exit() { f_(); }

 private:
  F f_;
};

}  // namespace tutti::gpu::detail
