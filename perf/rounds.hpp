// SPDX-License-Identifier: Apache-2.0
// The timed part of tutti-perf: only the communication of each command.
#pragma once

#include "common/collective_workload.hpp"
#include "common/workload.hpp"

#include <tutti/tutti.hpp>

#include <cstdint>

namespace perf {

// `rounds` rounds on each rank. The workload outlives the task.
tutti::task<> run_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, message_window* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, vector_sum* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, gathered_blocks* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, scattered_sum* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, broadcast_message* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, exchanged_blocks* data, std::int64_t rounds);
tutti::task<> run_rounds(tutti::communicator world, barrier_times* data, std::int64_t rounds);

// The same with persistent operations.
tutti::task<> run_prepared_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds);
tutti::task<> run_prepared_rounds(tutti::communicator world, vector_sum* data, std::int64_t rounds);

// The same by put_signal and wait_signal.
tutti::task<> run_one_sided_rounds(tutti::communicator world, message_pair* data, std::int64_t rounds);

}  // namespace perf
