// SPDX-License-Identifier: Apache-2.0
// What this process stands on, as the kernel shows it: no program under test is asked.
#pragma once

#include <string>
#include <string_view>

namespace perf {

int usable_cores() noexcept;
// "AMD EPYC, Linux 6.1.0".
std::string machine_text();
// Whether a file of this name (a part of it) is mapped, as shared-memory transports do it.
bool maps_memory_named(std::string_view name);
// Whether a descriptor of this kind is open, as in "anon_inode:[io_uring]".
bool has_descriptor_named(std::string_view name);

}  // namespace perf
