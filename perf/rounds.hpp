// SPDX-License-Identifier: Apache-2.0
// The timed part of tutti-perf: only the communication of each command.
#pragma once

#include "common/collective_workload.hpp"
#include "common/workload.hpp"

#include <tutti/tutti.hpp>

#include <cstdint>

namespace perf {

// With the windows of this rank.
struct window_pair : put_pair {
  using put_pair::put_pair;
  tutti::window<std::byte> shown;
  std::uint64_t come = 0;  // signals that this rank has waited for
};
struct window_count : remote_count {
  using remote_count::remote_count;
  tutti::window<std::byte> shown;
};

// `rounds` rounds on each rank. The workload outlives the task.
tutti::task<> run_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, message_window* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, window_pair* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, window_count* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, vector_sum* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, gathered_blocks* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, scattered_sum* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, broadcast_message* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, exchanged_blocks* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, barrier_times* data, std::int64_t rounds);

// The same with persistent operations.
tutti::task<> run_prepared_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds);
tutti::task<> run_prepared_rounds(tutti::communicator world, vector_sum* data, std::int64_t rounds);

}  // namespace perf
