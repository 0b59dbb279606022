// SPDX-License-Identifier: Apache-2.0
// Ranks of one process that share a device. Each rank contributes its memory and an event. The last rank
// enqueues the whole collective for all, and gives them the event behind it. No kernel waits for another.
#pragma once

#include "comm/calls.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::gpu::impl {

class single_device_group {
 public:
  // One rank's arguments of a collective, which the ranks compare.
  struct arguments {
    operation_kind kind{};
    element_type type{};
    reduce_kind op{};
    int root = -1;
    std::size_t element_bytes = 0, in = 0, out = 0;  // `in` and `out` in elements
    double factor = 1;
  };
  static arguments arguments_of(const device_arguments& c);
  // One rank's part of one collective, or of a chunk of it: its arguments and memory, then the outcome.
  struct contribution {
    arguments what;
    view in;
    view out;
    // `in` and `out` are ready behind it (null: now). After `settled`, the collective is done behind it.
    void* event = nullptr;
    std::shared_ptr<const doorbell_handle> waker;
    // Set by the last rank, before it notifies `waker`.
    std::atomic<bool> settled{false};
    std::optional<error> failure;
    std::shared_ptr<const void> keep;
  };

  using contributions = recycled_vector<std::shared_ptr<contribution>>;  // indexed by rank
  // How the calls of the ranks differ; empty if they agree.
  static std::string disagreement(const contributions& of);
  // Enqueues the whole collective behind the events of all ranks.
  static void enqueue(const contributions& of, const std::shared_ptr<driver>& with, void* stream);

  explicit single_device_group(int ranks) : ranks_(ranks), next_(static_cast<std::size_t>(ranks)) {}

  // Returns the group of that name in this process; the first call makes it.
  static std::shared_ptr<single_device_group> find(const std::string& name, int ranks);

  // Adds `mine` to the rank's next collective. The last rank enqueues the collective on `with`, in `stream`.
  void come(int rank, const std::shared_ptr<contribution>& mine, const std::shared_ptr<driver>& with,
            void* stream);
  // Fails every contribution that is not settled, and all later ones.
  void break_up(const error& why) noexcept;

 private:
  // Drops `v` before it wakes the rank, whose thread must free the memory.
  static void settle(std::shared_ptr<contribution> v, const std::optional<error>& failure) noexcept;

  const int ranks_;
  std::mutex mutex_;
  std::vector<std::size_t> next_;  // collective of each rank
  std::size_t complete_ = 0;       // collectives to which all ranks have come
  // Of those behind, in order. Null: the rank has not come. Free ones, all null, are at the end and used again.
  std::vector<contributions> tables_;
  std::optional<error> broken_;
};

}  // namespace tutti::gpu::impl
