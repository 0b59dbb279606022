// SPDX-License-Identifier: Apache-2.0
// cores: which cores a process may use, and what they share.
#pragma once

#include <string>
#include <vector>

namespace tutti::base {

// Cores that processes with these affinity masks (endpoint_record::cpus), or this one, may use together: as many as
// the cgroup's quota at most.
int usable_cores(const std::vector<std::string>& masks = {}) noexcept;
// This process's affinity mask as hexadecimal digits, least significant core last; empty if it is unknown.
std::string cpu_mask();
std::vector<int> cores_in(const std::string& mask);  // ascending; commas in the mask mean nothing
// The number of the lowest core that shares the last-level cache of all cores of this mask, as text; empty: they do not
// share one, or it is not known. `cores` is the folder where the kernel describes them.
std::string cache_of(const std::string& mask, const std::string& cores = "/sys/devices/system/cpu");

}  // namespace tutti::base
