// SPDX-License-Identifier: Apache-2.0
#include "launch/line_prefixer.hpp"

namespace tutti::launch {

void line_prefixer::begin_line(std::string& out) const {
  if (to_.unfinished_line_of_ != nullptr && to_.unfinished_line_of_ != this) out += '\n';
  to_.unfinished_line_of_ = nullptr;
}

void line_prefixer::feed(std::string_view bytes) {
  if (bytes.empty()) return;
  speakers_.heard(rank_);
  if (!speakers_.mixed()) {
    to_.unfinished_line_of_ = bytes.back() == '\n' ? nullptr : this;
    to_.write(bytes);
    return;
  }

  const std::string prefix = speakers_.prefix(rank_);
  std::string out;
  if (to_.unfinished_line_of_ == this) {  // no other stream has written in between: the line continues
    const std::size_t newline = bytes.find('\n');
    const std::size_t end = newline == std::string_view::npos ? bytes.size() : newline + 1;
    out += bytes.substr(0, end);
    bytes.remove_prefix(end);
    if (newline != std::string_view::npos) to_.unfinished_line_of_ = nullptr;
  }
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      held_ += bytes;
      if (held_.size() < longest_kept_bytes) break;
      begin_line(out);
      out += prefix + held_;
      held_.clear();
      to_.unfinished_line_of_ = this;
      break;
    }
    begin_line(out);
    out += prefix;
    out += held_;
    out += bytes.substr(0, newline + 1);
    held_.clear();
    bytes.remove_prefix(newline + 1);
  }
  if (!out.empty()) to_.write(out);
}

void line_prefixer::finish() {
  std::string out;
  if (!held_.empty()) {
    begin_line(out);
    out += speakers_.prefix(rank_) + held_ + '\n';
    held_.clear();
  } else if (speakers_.mixed() && to_.unfinished_line_of_ == this) {
    out += '\n';
    to_.unfinished_line_of_ = nullptr;
  }
  if (!out.empty()) to_.write(out);
}

void line_author::say(std::string_view lines) {
  std::string out;
  if (to_.unfinished_line_of_ != nullptr) out += '\n';
  to_.unfinished_line_of_ = nullptr;
  out += lines;
  to_.write(out);
}

}  // namespace tutti::launch
