// SPDX-License-Identifier: Apache-2.0
// line_prefixer: turns the output of many ranks into one readable stream. While a single rank has written,
// its bytes pass unchanged and at once, including progress bars. When a second one writes, lines come whole
// and start with their rank.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launch/options.hpp"

namespace tutti::launch {

// The destination of lines. It remembers whose line is unfinished there, so that the next one does not run
// into it.
class line_destination {
 public:
  line_destination() = default;
  line_destination(const line_destination&) = delete;
  line_destination& operator=(const line_destination&) = delete;
  virtual ~line_destination() = default;

  virtual void write(std::string_view bytes) = 0;

 private:
  friend class line_prefixer;
  friend class line_author;
  const void* unfinished_line_of_ = nullptr;
};

// The ranks that have written so far, on any stream of the job.
class speakers {
 public:
  explicit speakers(tag_policy policy) : policy_(policy) {}

  void heard(int rank) {
    if (first_ < 0) first_ = rank;
    if (rank != first_) several_ = true;
  }
  // Whether lines of several ranks can meet.
  bool mixed() const { return several_ || policy_ == tag_policy::always; }
  std::string prefix(int rank) const {
    return policy_ == tag_policy::never ? "" : '[' + std::to_string(rank) + "] ";
  }

 private:
  tag_policy policy_;
  int first_ = -1;
  bool several_ = false;
};

// One output stream of one rank.
class line_prefixer {
 public:
  // A longer line is passed on in pieces, which stay together unless another rank writes in between.
  static constexpr std::size_t longest_kept_bytes = 64 * 1024;

  line_prefixer(int rank, speakers& all, line_destination& to) : rank_(rank), speakers_(all), to_(to) {}

  void feed(std::string_view bytes);
  // The stream has ended: passes on a last line without newline, and adds one if lines of others can follow.
  void finish();

 private:
  // Adds the newline that another stream's unfinished line lacks.
  void begin_line(std::string& out) const;

  int rank_;
  speakers& speakers_;
  line_destination& to_;
  std::string held_;  // the start of a line whose end has not come
};

// Writes lines of the launcher's own. It is no rank, so these do not make prefixes appear.
class line_author {
 public:
  explicit line_author(line_destination& to) : to_(to) {}
  void say(std::string_view lines);

 private:
  line_destination& to_;
};

}  // namespace tutti::launch
