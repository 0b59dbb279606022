// SPDX-License-Identifier: Apache-2.0
// What this process stands on, as the kernel shows it: no program under test is asked.
#pragma once

#include <string>
#include <string_view>

namespace perf {

// That the ranks of a program may use, also those that a launcher has kept from this one.
int usable_cores() noexcept;
// "AMD EPYC, Linux 6.1.0".
std::string machine_text();
// The same for all processes of one running kernel, different for others: below 2^48, so that it travels in a
// double.
double host_mark();
// Binds this process to core `rank` of those it may use, modulo their number.
void pin_to_core(int rank) noexcept;
// Whether a file of this name (a part of it) is mapped, as shared-memory transports do it.
bool maps_memory_named(std::string_view name);
// Whether a descriptor of this kind is open, as in "anon_inode:[io_uring]".
bool has_descriptor_named(std::string_view name);

}  // namespace perf
