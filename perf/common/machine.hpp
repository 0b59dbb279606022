// SPDX-License-Identifier: Apache-2.0
// The machine of this process as the kernel reports it, independent of the measured library.
#pragma once

#include <string>
#include <string_view>

namespace perf {

// Cores that the ranks of a program may use, including those that a launcher has excluded for this rank.
int usable_cores() noexcept;
// "AMD EPYC, Linux 6.1.0".
std::string machine_text();
// The same for all processes of one running kernel, different for others. Less than 2^48, so that a double
// can hold it.
double host_mark();
// Binds this process to one of the cores that it may use: number `rank` modulo their count.
void pin_to_core(int rank) noexcept;
// Whether a file is mapped whose name contains this text, as shared-memory transports do.
bool maps_memory_named(std::string_view name);
// Whether a descriptor of this kind is open, as in "anon_inode:[io_uring]".
bool has_descriptor_named(std::string_view name);

}  // namespace perf
