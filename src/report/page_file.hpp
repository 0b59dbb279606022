// SPDX-License-Identifier: Apache-2.0
// Where a page is written.
#pragma once

#include <filesystem>
#include <string>

namespace tutti::report {

// Whether `path` is the target of standard output, such as /dev/stdout.
bool is_standard_output(const std::filesystem::path& path) noexcept;

// A regular file appears as a whole or not at all, at the end of symbolic links to it. Devices, pipes and
// standard output are written as they are. Returns false with errno; nothing is then left behind.
bool write_page(const std::filesystem::path& path, const std::string& content) noexcept;

}  // namespace tutti::report
