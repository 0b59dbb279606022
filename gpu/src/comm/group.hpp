// SPDX-License-Identifier: Apache-2.0
// What all kinds of device communicators have: their ranks, the check of what is asked, and running
// operations.
#pragma once

#include "device/work_state.hpp"

#include <list>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/gpu/any_communicator.hpp>
#include <tutti/scope.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::gpu::detail {

// Waits in a coroutine for a point that was made before.
class mark : waiter {
 public:
  mark() noexcept : waiter([](waiter& w) noexcept { static_cast<mark&>(w).passed(); }) { immediate = true; }
  void set(attachment& on, point& p) {
    on_ = &on;
    set_ = true;
    on.wait_for(p, *this, false);
  }
  bool is_set() const noexcept { return set_; }
  bool has_passed() const noexcept { return set_ && !linked(); }  // or failed: awaiting it tells, at once

  class awaiter : suspended {
   public:
    explicit awaiter(mark& m) noexcept : suspended(&stop), mark_(m) {}
    ~awaiter() {
      if (mark_.waiting_ == this) mark_.waiting_ = nullptr;
    }
    bool await_ready() const noexcept { return !mark_.set_ || !mark_.linked(); }
    template <class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
      if (!begin(h, "the operation")) return false;
      mark_.waiting_ = this;
      joined();
      return true;
    }
    void await_resume() const {
      rethrow();
      mark_.rethrow();
    }

   private:
    friend class mark;
    static void stop(suspended& self, errc why, const std::string& text) noexcept {
      auto& a = static_cast<awaiter&>(self);
      a.set_failure(why, text);
      a.mark_.waiting_ = nullptr;
      a.mark_.on_->resume_soon(a);
    }
    mark& mark_;
  };
  awaiter operator co_await() noexcept { return awaiter(*this); }

 private:
  friend class awaiter;
  void passed() noexcept {
    if (waiting_ != nullptr) on_->resume_soon(*std::exchange(waiting_, nullptr));
  }
  attachment* on_ = nullptr;
  bool set_ = false;
  awaiter* waiting_ = nullptr;
};

// The factor of a premul_sum, of elements whose factors fit into a double.
double factor_in(const tutti::detail::reduction& op, element_type type) noexcept;

class group : public target, public std::enable_shared_from_this<group> {
 public:
  group(std::shared_ptr<attachment> on, std::string name, int rank, int size)
      : on_(std::move(on)), name_(std::move(name)), rank_(rank), size_(size) {}

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }
  attachment& on() const noexcept { return *on_; }
  const std::shared_ptr<attachment>& shared_on() const noexcept { return on_; }
  // The event that the call comes after; of now, on its stream, where it has none.
  std::shared_ptr<void> event_before(const call& c) const;
  static bool is_message(operation_kind kind) noexcept {
    return row_of(kind).of == tutti::detail::family::message;
  }
  // A collective of even blocks, or of whole vectors, which can be cut into chunks.
  static bool has_chunks(const call& c) noexcept;

 protected:
  // Why it cannot be meant; empty: it can.
  std::string bad_argument(const call& c) const;
  std::string title(const call& c) const;  // "all_reduce on devices of world"
  // Elements of one rank's part: of all_gather those of `in`, of reduce_scatter those of `out`, ...
  static std::size_t block_of(const call& c, int size) noexcept;

  // An operation that runs as a coroutine until it has ended; `body` reports through `of` what happens, and
  // throws nothing.
  struct running {
    std::shared_ptr<work_state> of;
    scope tasks;
    bool ended = false;
    errc stopped = errc::success;  // why it was asked to end
    std::string reason;
  };
  // Makes the work; a bad call has failed already.
  std::shared_ptr<work_state> begin(call what);
  running& add(std::shared_ptr<work_state> w);
  void reap() noexcept;
  bool is_idle() const noexcept;
  // From derived destructors, before anything is gone that the coroutines use.
  void end_all(const std::string& why) noexcept;

  std::shared_ptr<attachment> on_;
  std::string name_;

 private:
  int rank_;
  int size_;
  std::list<running> running_;
};

}  // namespace tutti::gpu::detail
