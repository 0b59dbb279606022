// SPDX-License-Identifier: Apache-2.0
// replace_file: a file that is written whole or not at all, such as a checkpoint. Link with tutti::train.
#pragma once

#include <filesystem>
#include <string_view>

namespace tutti {

// Writes `content` to the file `path`: a new file beside it takes its place. On return the content is on the disk. A
// program that ends meanwhile, and a call that throws, leave the old file. Blocks: call it in tutti::compute. Throws
// std::system_error.
void replace_file(const std::filesystem::path& path, std::string_view content);

}  // namespace tutti
