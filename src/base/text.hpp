// SPDX-License-Identifier: Apache-2.0
// Words for error texts.
#pragma once

#include <chrono>
#include <string>

namespace tutti::base {

// "30 s", "1.5 s", "20 ms".
std::string duration_text(std::chrono::milliseconds d);

// The words of an errno value.
std::string errno_text(int code);

}  // namespace tutti::base
