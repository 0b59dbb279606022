// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

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

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text +=
        end - begin == 1 ? std::to_string(ranks[begin]) : fmt::format("{}-{}", ranks[begin], ranks[end - 1]);
    begin = end;
  }
  return text;
}

std::string ranks_text(std::vector<int> ranks) {
  const char* const noun = ranks.size() == 1 ? "rank " : "ranks ";
  return noun + rank_list(std::move(ranks));
}

}  // namespace tutti::base
