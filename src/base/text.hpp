// SPDX-License-Identifier: Apache-2.0
// Error texts.
#pragma once

#include <chrono>
#include <string>

namespace tutti::base {

// "30 s", "1.5 s", "20 ms".
std::string duration_text(std::chrono::milliseconds d);

// The text of an errno value.
std::string errno_text(int code);
// The same for a file that could not be written, with the cure if there is one: "File too large; raise the
// limit of file sizes (ulimit -f)".
std::string write_error_text(int code);

}  // namespace tutti::base
