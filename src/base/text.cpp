// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace tutti::base {

std::string duration_text(std::chrono::milliseconds d) {
  const auto ms = d.count();
  if (ms > -1000 && ms < 1000) return fmt::format("{} ms", ms);
  return fmt::format("{:g} s", static_cast<double>(ms) / 1000);
}

std::string errno_text(int code) { return std::generic_category().message(code); }

std::string write_error_text(int code) {
  std::string text = errno_text(code);
  if (code == EFBIG) text += "; raise the limit of file sizes (ulimit -f)";
  if (code == ENOSPC || code == EDQUOT) text += "; make room, or write to another disk";
  return text;
}

}  // namespace tutti::base
