// SPDX-License-Identifier: Apache-2.0
// Where a page is written to.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::report {

// Whether `path` is what standard output leads to, such as /dev/stdout.
bool is_standard_output(const std::filesystem::path& path) noexcept;

// A regular file appears as a whole or not at all, at the end of symbolic links that lead to it. Devices,
// pipes and standard output are written to as they are. False: errno says why, and nothing is left behind.
bool write_page(const std::filesystem::path& path, const std::string& content) noexcept;

}  // namespace tutti::report
