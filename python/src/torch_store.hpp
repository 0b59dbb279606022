// SPDX-License-Identifier: Apache-2.0
// Adapts PyTorch's store to tutti's interface, so that the ranks of a group find each other through it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <mutex>
#include <queue>
#include <thread>
#include <tutti/extend/loop_driver.hpp>
#include <tutti/store.hpp>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti::python {

// The operations block, so a thread of this object runs them.
class torch_store final : public store {
 public:
  // `one_job`: all ranks were started by the same torchrun, if by any.
  torch_store(const c10::intrusive_ptr<c10d::Store>& base, extend::loop_driver& d, bool one_job);
  // The store behind PyTorch's prefixes.
  static c10::intrusive_ptr<c10d::Store> without_prefixes(c10::intrusive_ptr<c10d::Store> s);
  // Joins the thread. Not on the loop.
  ~torch_store() override;

  std::string name() const override { return "torch's store"; }
  // Moves to keys of their own for this meeting of the ranks. They may meet again at the same store: after
  // destroy_process_group, or as processes that torchrun has started anew, in place of those that came before.
  task<> begin_meeting(std::string rank, milliseconds timeout);

  // From now on operations fail; one that waits for a key does so within a second.
  void give_up() noexcept { given_up_ = true; }
  // On the loop. Whether no operation is under way, so that the coroutine that called it may be destroyed.
  bool is_idle();

 private:
  struct on_thread;
  task<store_answer> carry_out(store_request what) override;
  // On the thread.
  void call_torch(const store_request& what, store_answer& answer);
  void wait_for(const std::string& key, milliseconds timeout);
  void work();

  c10::intrusive_ptr<c10d::Store> target_;  // without its prefixes
  c10::intrusive_ptr<c10d::Store> own_;     // a connection to it
  c10::intrusive_ptr<c10d::Store> base_;    // own_ with the prefixes
  extend::loop_driver& driver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<on_thread*> calls_;  // the first is under way
  bool ending_ = false;
  std::atomic<bool> given_up_ = false;
  bool failed_ = false;  // a call failed; of the thread
  std::thread thread_;
};

}  // namespace tutti::python
