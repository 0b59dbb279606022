// SPDX-License-Identifier: Apache-2.0
// Which threads use NCCL's communicator, and which frees it.
//
// The submit thread alone passes it to NCCL. The loop thread ends it: no use begins after that. Then the ender, a thread
// of its own, frees it. An abort waits for the other ranks of the node to abort theirs, and for the device, where
// another communicator that has ended may still have work.
//
// A call that waits for other ranks may never return. The ender gets the submit thread out of it:
//
//   loop thread     end()
//   ender             | patience | revoke | patience | abort |
//   submit thread   --[ waiting( the call ......................) ]--
//
// - Revoking frees nothing: a submit thread that enters the call only now finds a valid communicator.
// - Aborting frees. It comes last: the call has ignored the revocation, or NCCL is older than 2.28.7 and
//   cannot revoke. The submit thread finds get() == nullptr when the call returns.
// - The ender interrupts only during waiting(), and waiting() does not return while the ender is in NCCL.
//
// After the last use the ender revokes, so that NCCL's kernels end. It aborts when all gates are open, because freeing
// would wait for them. An older NCCL aborts at once.
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

using frees_holds = std::vector<std::shared_ptr<gpu::impl::frees_hold>>;

class owned_communicator {
 public:
  owned_communicator(const abi::table& c, abi::communicator* handle, int its_rank, std::vector<int> its_ranks,
                     std::uint64_t its_number) noexcept
      : calls(c), rank(its_rank), ranks(std::move(its_ranks)), number(its_number), handle_(handle) {}

  // On the loop thread: no use begins from now on.
  void end() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  // On the ender, once, after end(): waits for the last use, and interrupts its call if that does not return. Frees
  // the communicator. `holds` are those of its work.
  void finish(gpu::impl::driver& on, const frees_holds& holds) noexcept {
    {
      std::unique_lock lock(mutex_);
      interrupt(lock);
      changed_.wait(lock, [this] { return !in_use_; });
      if (handle_ == nullptr) return;
    }
    if (calls.revoke == nullptr) return abort();
    if (!revoked_) calls.revoke(handle_, 0);
    for (const auto& h : holds) h->release();
    on.free_long([this] { abort(); }, patience_with_others);
  }
  // On the submit thread, between uses, of one that has not ended: waits for the other ranks of the node, and frees
  // it.
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
      const std::lock_guard lock(of_->mutex_);
      of_->in_use_ = false;
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
  // With work of healthy communicators: until it is done, nothing should be freed.
  static constexpr auto patience_with_others = std::chrono::seconds(2);

  abi::communicator* take() noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    return std::exchange(handle_, nullptr);
  }
  void abort() noexcept {
    if (abi::communicator* const c = take()) calls.abort(c);
  }

  void interrupt(std::unique_lock<std::mutex>& lock) noexcept {
    for (const bool by_revoking : {true, false}) {
      if (by_revoking && calls.revoke == nullptr) continue;
      if (returns(lock)) return;
      abi::communicator* const c = by_revoking ? handle_ : std::exchange(handle_, nullptr);
      revoked_ = interrupting_ = true;
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
  bool interrupting_ = false;  // the ender is in NCCL
  bool revoked_ = false;       // of the ender
};

// The communicators that nobody uses on one rank: healthy ones, which wait for the next use, those that end, and those
// that NCCL connects. The calls that end and connect them may wait for ever, each on a thread of its own.
class idle_communicators {
 public:
  explicit idle_communicators(std::shared_ptr<gpu::impl::submit_thread> thread)
      : thread_(std::move(thread)) {}
  ~idle_communicators() {
    threads_.clear();  // destroying waits for the device, and so for their work
    for (const auto& [ranks, idle] : all_) thread_->submit([of = idle] { of->destroy(); });
  }
  idle_communicators(const idle_communicators&) = delete;
  idle_communicators& operator=(const idle_communicators&) = delete;

  void add(const std::shared_ptr<owned_communicator>& of) { all_.emplace(of->ranks, of); }
  // Ends a communicator. `holds` and `streams` are those of its work.
  void end(const std::shared_ptr<owned_communicator>& of, frees_holds holds = {},
           std::vector<std::shared_ptr<gpu::impl::stream_state>> streams = {}) {
    of->end();
    thread_beside()->submit([of, holds = std::move(holds), streams = std::move(streams),
                             by = thread_->on().shared_driver()] { of->finish(*by, holds); });
  }
  // Returns a thread for calls of the caller's. It outlives them.
  std::shared_ptr<gpu::impl::submit_thread> thread_beside() {
    std::erase_if(threads_, [](const auto& t) { return t.use_count() == 1 && t->is_idle(); });
    return threads_.emplace_back(
        std::make_shared<gpu::impl::submit_thread>(thread_->on().shared_from_this()));
  }
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
  std::vector<std::shared_ptr<gpu::impl::submit_thread>> threads_;
};

}  // namespace tutti::nccl
