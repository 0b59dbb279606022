// SPDX-License-Identifier: Apache-2.0
// sole_owner: a std::unique_ptr for what nearly every program has: each type of task owns frames, each request a slot.
// An instance of std::unique_ptr takes a hundredth of the two headers of Asio to compile (perf/NOTES.md).
#pragma once

#include <cstddef>

namespace tutti::detail {

// Owns what the handle names, unless that is null, and destroys it by Destroyer()(handle). Move-only.
template <class Handle, class Destroyer>
class sole_owner {
 public:
  sole_owner() noexcept = default;
  explicit sole_owner(Handle handle) noexcept : handle_(handle) {}
  sole_owner(sole_owner&& other) noexcept : handle_(other.release()) {}
  sole_owner& operator=(sole_owner&& other) noexcept {
    const Handle next = other.release();
    const sole_owner before(release());
    handle_ = next;
    return *this;
  }
  ~sole_owner() {
    if (handle_) Destroyer()(handle_);
  }

  Handle get() const noexcept { return handle_; }
  Handle release() noexcept {
    const Handle released = handle_;
    handle_ = Handle();
    return released;
  }
  Handle operator->() const noexcept { return handle_; }
  auto& operator*() const noexcept { return *handle_; }
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  friend bool operator==(const sole_owner& a, std::nullptr_t) noexcept { return !a.handle_; }

 private:
  Handle handle_{};
};

}  // namespace tutti::detail
