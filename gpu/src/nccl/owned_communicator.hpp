// SPDX-License-Identifier: Apache-2.0
// Which thread uses NCCL's communicator, and which frees it.
//
// The submit thread owns the communicator: it alone passes it to NCCL, and it alone frees it, between two
// uses. The loop thread ends it: no use begins after that.
//
// There is one exception. A call that waits for other ranks may never return. If the loop thread ends the
// communicator during such a call, the interrupter, a thread of its own, gets the submit thread out:
//
//   loop thread     end()
//   interrupter       | patience | revoke | patience | abort |
//   submit thread   --[ waiting( the call ......................) ]-- ~use joins the interrupter
//
// - Revoking frees nothing: a submit thread that enters the call only now finds a valid communicator.
// - Aborting frees. It comes last: the call has ignored the revocation, or NCCL is older than 2.28.7 and
//   cannot revoke. The submit thread finds get() == nullptr when the call returns.
// - The interrupter acts only during waiting(), and waiting() does not return while the interrupter acts.
// - The interrupter ends before the use does, so no thread outlives the device that it works on.
//
// Destroying waits for the device, and for the other ranks of the node. One whose stream stands at a gate that waits for
// this rank could not do it. So healthy communicators are kept for later ones of the same ranks (idle_communicators).
#pragma once

#include "comm/submit_thread.hpp"
#include "nccl/nccl_api.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {

class owned_communicator {
 public:
  owned_communicator(const abi::table& c, abi::communicator* handle, int its_rank, std::vector<int> its_ranks,
                     std::uint64_t its_number) noexcept
      : calls(c), rank(its_rank), ranks(std::move(its_ranks)), number(its_number), handle_(handle) {}

  // ---- On the loop thread ----

  // No use begins from now on; a call that does not return is interrupted.
  void end(std::shared_ptr<gpu::impl::driver> on) noexcept {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    if (!in_use_) return;
    interrupter_ = std::jthread([this, on = std::move(on)] {
      on->enter_thread();
      interrupt();
    });
  }

  // ---- On the submit thread, between uses ----

  // Frees it, unless it has been freed.
  void abort() noexcept {
    if (abi::communicator* const c = take()) calls.abort(c);
  }
  // Waits for the other ranks of the node, and frees it.
  void destroy() noexcept {
    if (abi::communicator* const c = take()) {
      calls.finalize(c);
      calls.destroy(c);
    }
  }

  // ---- On the submit thread ----

  class use {
   public:
    explicit use(owned_communicator& of) noexcept {
      const std::lock_guard lock(of.mutex_);
      if (of.ended_) return;
      of_ = &of;
      handle_ = of.handle_;
      of.in_use_ = true;
    }
    use(const use&) = delete;
    use& operator=(const use&) = delete;
    ~use() {
      if (of_ == nullptr) return;
      std::jthread interrupter;  // joined after the lock is released
      const std::lock_guard lock(of_->mutex_);
      of_->in_use_ = false;
      interrupter = std::move(of_->interrupter_);
      of_->changed_.notify_all();
    }

    // Null if it has ended, or was aborted during waiting().
    abi::communicator* get() const noexcept { return handle_; }
    // Makes a call that may wait for other ranks, at most one in a use. Requires get() != nullptr.
    template <class F>
    abi::result waiting(F&& call) noexcept {
      {
        const std::lock_guard lock(of_->mutex_);
        of_->waiting_ = true;
        of_->changed_.notify_all();
      }
      const abi::result r = call();
      std::unique_lock lock(of_->mutex_);
      of_->changed_.wait(lock, [this] { return !of_->interrupting_; });
      of_->waiting_ = false;
      of_->changed_.notify_all();
      handle_ = of_->handle_;
      return r;
    }

   private:
    owned_communicator* of_ = nullptr;  // null: it had ended
    abi::communicator* handle_ = nullptr;
  };

  const abi::table& calls;
  const int rank;
  const std::vector<int> ranks;  // of all ranks, in the world
  const std::uint64_t number;    // the same on all ranks

 private:
  // A call may take 100 short waits, a tenth of a second, to return by itself. Time in which the whole process
  // was stopped does not count.
  static constexpr int patience = 100;
  static constexpr auto short_wait = std::chrono::milliseconds(1);

  abi::communicator* take() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    return std::exchange(handle_, nullptr);
  }

  void interrupt() noexcept {
    std::unique_lock lock(mutex_);
    for (const bool by_revoking : {true, false}) {
      if (by_revoking && calls.revoke == nullptr) continue;
      if (returns(lock)) return;
      abi::communicator* const c = by_revoking ? handle_ : std::exchange(handle_, nullptr);
      interrupting_ = true;
      lock.unlock();
      by_revoking ? calls.revoke(c, 0) : calls.abort(c);
      lock.lock();
      interrupting_ = false;
      changed_.notify_all();
    }
  }
  // Whether the use ends, or its call returns, without an interruption.
  bool returns(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return waiting_ || !in_use_; });
    for (int i = 0; i < patience && waiting_; ++i) {
      lock.unlock();
      std::this_thread::sleep_for(short_wait);
      lock.lock();
    }
    return !waiting_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  abi::communicator* handle_;  // null: freed
  bool ended_ = false;
  bool in_use_ = false;
  bool waiting_ = false;       // the submit thread is in a call that may not return, or about to enter it
  bool interrupting_ = false;  // the interrupter is in NCCL
  std::jthread interrupter_;
};

// The communicators that nobody uses any longer, on one rank.
class idle_communicators {
 public:
  explicit idle_communicators(std::shared_ptr<gpu::impl::submit_thread> thread)
      : thread_(std::move(thread)) {}
  ~idle_communicators() {
    for (const auto& [ranks, idle] : all_) thread_->submit([of = idle] { of->destroy(); });
  }
  idle_communicators(const idle_communicators&) = delete;
  idle_communicators& operator=(const idle_communicators&) = delete;

  void add(const std::shared_ptr<owned_communicator>& of) { all_.emplace(of->ranks, of); }
  // Takes the one of these ranks that `number` names, or any if it is 0. Returns null if there is none.
  std::shared_ptr<owned_communicator> take(const std::vector<int>& ranks, std::uint64_t number) {
    const auto [from, to] = all_.equal_range(ranks);
    const auto found =
        std::find_if(from, to, [number](const auto& e) { return number == 0 || e.second->number == number; });
    if (found == to) return nullptr;
    const std::shared_ptr<owned_communicator> taken = std::move(found->second);
    all_.erase(found);
    return taken;
  }

 private:
  const std::shared_ptr<gpu::impl::submit_thread> thread_;
  std::multimap<std::vector<int>, std::shared_ptr<owned_communicator>>
      all_;  // by the ranks' numbers in the world
};

}  // namespace tutti::nccl
