// SPDX-License-Identifier: Apache-2.0
// Where ranks of one process that share a device meet: each brings its memory and an event, the last to come
// enqueues the whole collective for all, and tells them the event after which it is done. No kernel waits for
// another.
#pragma once

#include "device/attachment.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::gpu::detail {

class single_device_group {
 public:
  // What one rank brings to one collective, and what it gets.
  struct contribution {
    operation_kind kind{};
    view in;
    view out;
    int root = -1;
    reduce_kind op = reduce_kind::none;
    double factor = 1;
    // Behind which `in` and `out` are ready (null: they are); after `settled`, behind which the collective is done.
    void* event = nullptr;
    std::shared_ptr<const doorbell_handle> waker;
    // Set by the last to come, before its doorbell is notified.
    std::atomic<bool> settled{false};
    errc failure = errc::success;
    std::string text;
    std::shared_ptr<const void> keep;
  };

  using contributions = recycled_vector<std::shared_ptr<contribution>>;  // of all ranks
  // How what they have called differs; empty: it does not.
  static std::string disagreement(const contributions& of);
  // The whole collective, after their events.
  static void enqueue(const contributions& of, const std::shared_ptr<driver>& with, void* stream);

  explicit single_device_group(int ranks, std::string name) : ranks_(ranks), name_(std::move(name)) {}

  // The single-device group of that name in this process, made by the first to ask.
  static std::shared_ptr<single_device_group> find(const std::string& name, int ranks);

  // Brings `mine` to collective `sequence`. The last to come enqueues it on `with`, in `stream`.
  void come(std::uint64_t sequence, int rank, const std::shared_ptr<contribution>& mine,
            const std::shared_ptr<driver>& with, void* stream);
  // Ends all that is not settled, and whatever is begun later, with this.
  void break_up(errc why, const std::string& text) noexcept;
  std::string missing(std::uint64_t sequence) const;  // "ranks 1, 3": have not come
  std::uint64_t next(int rank) noexcept;              // this rank's next sequence

 private:
  struct table {
    std::uint64_t sequence = 0;
    single_device_group::contributions contributions;
    int present = 0;  // 0: it is free
  };
  // Lets go of it before its rank is woken: the memory is to go back to the thread that it is of.
  static void settle(std::shared_ptr<contribution> v) noexcept;

  const int ranks_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::vector<table> tables_;
  std::vector<std::uint64_t> next_;
  errc broken_ = errc::success;
  std::string why_;
};

}  // namespace tutti::gpu::detail
