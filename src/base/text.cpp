// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <fmt/format.h>

#include <system_error>

namespace tutti::base {

std::string duration_text(std::chrono::milliseconds d) {
  const auto ms = d.count();
  if (ms > -1000 && ms < 1000) return fmt::format("{} ms", ms);
  return fmt::format("{:g} s", static_cast<double>(ms) / 1000);
}

std::string errno_text(int code) { return std::generic_category().message(code); }

}  // namespace tutti::base
