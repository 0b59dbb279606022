// SPDX-License-Identifier: Apache-2.0
#include "nccl/owned_communicator.hpp"

#include <chrono>
#include <utility>

namespace tutti::nccl {
namespace {

// A call may take 100 short waits, a tenth of a second, to return by itself. Time in which the whole process
// was stopped does not count.
constexpr int patience = 100;
constexpr auto short_wait = std::chrono::milliseconds(1);

}  // namespace

void owned_communicator::end(std::shared_ptr<gpu::detail::driver> on) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  if (!in_use_) return;
  interrupter_ = std::thread([this, on = std::move(on)] {
    on->enter_thread();
    interrupt();
  });
}

void owned_communicator::abort() noexcept {
  if (abi::communicator* const c = take()) calls.abort(c);
}

void owned_communicator::destroy() noexcept {
  if (abi::communicator* const c = take()) {
    calls.finalize(c);
    calls.destroy(c);
  }
}

abi::communicator* owned_communicator::take() noexcept {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  return std::exchange(handle_, nullptr);
}

abi::communicator* owned_communicator::begin_use() noexcept {
  const std::lock_guard lock(mutex_);
  if (ended_) return nullptr;
  in_use_ = handle_ != nullptr;
  return handle_;
}

void owned_communicator::end_use() noexcept {
  std::thread interrupter;
  {
    const std::lock_guard lock(mutex_);
    in_use_ = false;
    interrupter = std::move(interrupter_);
    changed_.notify_all();
  }
  if (interrupter.joinable()) interrupter.join();
}

void owned_communicator::begin_wait() noexcept {
  const std::lock_guard lock(mutex_);
  waiting_ = true;
  changed_.notify_all();
}

abi::communicator* owned_communicator::end_wait() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !interrupting_; });
  waiting_ = false;
  changed_.notify_all();
  return handle_;
}

// Whether the use ends, or its call returns, without an interruption.
bool owned_communicator::returns(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return waiting_ || !in_use_; });
  for (int i = 0; i < patience && waiting_; ++i) {
    lock.unlock();
    std::this_thread::sleep_for(short_wait);
    lock.lock();
  }
  return !waiting_;
}

void owned_communicator::interrupt() noexcept {
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

}  // namespace tutti::nccl
