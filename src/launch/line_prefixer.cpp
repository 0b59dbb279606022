// SPDX-License-Identifier: Apache-2.0
#include "launch/line_prefixer.hpp"

#include <utility>

namespace tutti::launch {

void line_destination::end_wait() {
  for (line_prefixer* const one : std::exchange(waiting_, {})) one->end_wait();
}

void line_destination::say(std::string_view lines) {
  std::string out;
  if (is_unfinished_) out += '\n';
  set_unfinished_line_of(nullptr);
  out += lines;
  write(out);
  end_wait();
}

bool line_prefixer::waits(std::size_t bytes) {
  if (waiting_ && held_.size() + bytes > most_waiting_bytes) to_.end_wait();
  if (waiting_) return true;
  const line_prefixer* const other = to_.unfinished_line_of_;
  if (other == nullptr || other == this || !to_.begin_wait()) return false;
  to_.waiting_.push_back(this);
  return waiting_ = true;
}

void line_prefixer::end_wait() {
  waiting_ = false;
  std::string out;
  add_lines(std::exchange(held_, {}), out);
  write(out);
  if (over_) finish();
}

void line_prefixer::write(std::string_view bytes) {
  if (!bytes.empty()) to_.write(bytes);
  in_line_ = to_.unfinished_line_of_ == this;
  if (to_.unfinished_line_of_ == nullptr) to_.end_wait();
}

void line_prefixer::begin_line(std::string& out) const {
  if (to_.is_unfinished_ && to_.unfinished_line_of_ != this) out += '\n';
  to_.set_unfinished_line_of(nullptr);
}

void line_prefixer::feed(std::string_view bytes) {
  if (bytes.empty()) return;
  speakers_.heard(rank_);
  // The newline of a line that the launcher or another rank had to end already.
  if (in_line_ && to_.unfinished_line_of_ != this && bytes.front() == '\n') bytes.remove_prefix(1);
  in_line_ = false;
  if (bytes.empty()) return;
  if (!speakers_.mixed()) {
    to_.set_unfinished_line_of(bytes.back() == '\n' ? nullptr : this);
    return write(bytes);
  }
  if (waits(bytes.size())) {
    held_ += bytes;
    return;
  }

  std::string out;
  if (to_.unfinished_line_of_ == this) {  // no other stream has written in between: the line continues
    const std::size_t newline = bytes.find('\n');
    const std::size_t end = newline == std::string_view::npos ? bytes.size() : newline + 1;
    out += bytes.substr(0, end);
    bytes.remove_prefix(end);
    if (newline != std::string_view::npos) to_.set_unfinished_line_of(nullptr);
  }
  add_lines(bytes, out);
  write(out);
}

void line_prefixer::add_lines(std::string_view bytes, std::string& out) {
  const std::string prefix = speakers_.prefix(rank_);
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      held_ += bytes;
      if (held_.size() < longest_kept_bytes) break;
      begin_line(out);
      out += prefix + held_;
      held_.clear();
      to_.set_unfinished_line_of(this);
      break;
    }
    begin_line(out);
    out += prefix;
    out += held_;
    out += bytes.substr(0, newline + 1);
    held_.clear();
    bytes.remove_prefix(newline + 1);
  }
}

void line_prefixer::finish() {
  over_ = true;
  if (waiting_) return;
  std::string out;
  if (!held_.empty()) {
    begin_line(out);
    out += speakers_.prefix(rank_) + held_ + '\n';
    held_.clear();
  } else if (speakers_.mixed() && to_.unfinished_line_of_ == this) {
    out += '\n';
    to_.set_unfinished_line_of(nullptr);
  }
  if (to_.unfinished_line_of_ == this) to_.unfinished_line_of_ = nullptr;
  write(out);
}

}  // namespace tutti::launch
