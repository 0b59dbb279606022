// SPDX-License-Identifier: Apache-2.0
// line_prefixer: turns the output of many ranks into one readable stream. While a single rank has written,
// its bytes pass unchanged and at once, including progress bars. When a second one writes, lines come whole
// and start with their rank. If the first one's line is unfinished then, the others' lines wait a moment for
// its end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launch/options.hpp"

namespace tutti::launch {

class line_prefixer;

// The destination of lines. It remembers whose line is unfinished there, so that the next one does not run
// into it.
class line_destination {
 public:
  line_destination() = default;
  line_destination(const line_destination&) = delete;
  line_destination& operator=(const line_destination&) = delete;
  virtual ~line_destination() = default;

  virtual void write(std::string_view bytes) = 0;
  // Writes lines of the launcher's own. It is no rank, so these do not make prefixes appear.
  void say(std::string_view lines);

 protected:
  // Asks for a call of end_wait() after a moment, unless that is due already. Returns false if lines do not
  // wait here.
  virtual bool begin_wait() { return false; }
  bool anything_waits() const { return !waiting_.empty(); }
  // Writes the lines that wait for the end of another one.
  void end_wait();

 private:
  friend class line_prefixer;
  void set_unfinished_line_of(const line_prefixer* one) {
    unfinished_line_of_ = one;
    is_unfinished_ = one != nullptr;
  }
  bool is_unfinished_ = false;                         // the last line has no newline
  const line_prefixer* unfinished_line_of_ = nullptr;  // null: its stream has ended
  std::vector<line_prefixer*> waiting_;
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
  // Of one stream, while another one's line is unfinished. With more, that line is ended.
  static constexpr std::size_t most_waiting_bytes = 1024 * 1024;

  line_prefixer(int rank, speakers& all, line_destination& to) : rank_(rank), speakers_(all), to_(to) {}

  void feed(std::string_view bytes);
  // The stream has ended: passes on a last line without newline, and adds one if lines of others can follow.
  void finish();

 private:
  friend class line_destination;

  // Whether lines have to wait for the end of another stream's line.
  bool waits(std::size_t bytes);
  // Adds the newline that another stream's unfinished line lacks.
  void begin_line(std::string& out) const;
  // Adds the lines in the held bytes and these to `out`, and holds the start of an unfinished one.
  void add_lines(std::string_view bytes, std::string& out);
  void end_wait();
  void write(std::string_view bytes);

  int rank_;
  speakers& speakers_;
  line_destination& to_;
  std::string held_;      // the start of a line whose end has not come, or all that waits
  bool in_line_ = false;  // the bytes written last have no newline at their end
  bool waiting_ = false;
  bool over_ = false;  // the stream has ended
};

}  // namespace tutti::launch
