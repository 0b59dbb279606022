// SPDX-License-Identifier: Apache-2.0
// data_parallel on gradients in memory of a device, and the comparison of replicas there.
#pragma once

#include <tutti/communicator.hpp>
#include <tutti/gpu/gradient_hooks.hpp>
#include <tutti/task.hpp>
#include <tutti/train/data_parallel.hpp>
#include <tutti/train/replicas.hpp>

#include <vector>

namespace tutti::gpu {

// The names of earlier versions.
using tutti::data_parallel;
using tutti::data_parallel_options;

// Gradients in memory of a device, for data_parallel::create().
tutti::detail::gradient_memory memory_of(const std::vector<device_values>& gradients);
// data_parallel::broadcast() of such memory.
task<> broadcast_pieces(communicator c, std::vector<device_values> pieces, int root, stream after);

// Compares the values of all ranks bit for bit. Collective. The processor hashes them after the work on
// `after`, from copies of one part at a time, in the order of the pieces. The hash equals that of the same
// values in host memory.
task<replica_check> compare_replicas(communicator c, std::vector<device_values> pieces, stream after);

}  // namespace tutti::gpu
