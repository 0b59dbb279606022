// SPDX-License-Identifier: Apache-2.0
// replace_file: a file that is written whole or not at all, such as a checkpoint. Link with tutti::train.
#pragma once

#include <filesystem>
#include <string_view>

namespace tutti {

// Writes `content` to a new file, which then replaces the file `path`. On return the content is on the disk. A
// program that ends meanwhile, and a call that throws, leave the old file; only if the folder cannot be written
// to the disk, a call that throws leaves the new one. A program that is killed meanwhile may also leave a file
// `path`.new with eight hexadecimal digits. If several ranks replace one file, it has the content of one of them.
// Errors: std::system_error.
// Cost: blocks; call it in tutti::compute.
void replace_file(const std::filesystem::path& path, std::string_view content);

}  // namespace tutti
