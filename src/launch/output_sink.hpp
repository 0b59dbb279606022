// SPDX-License-Identifier: Apache-2.0
// line_prefixer: turns the output of many ranks into one readable stream. While a single rank has written,
// its bytes pass unchanged and at once, including progress bars. When a second one writes, lines come whole
// and start with their rank. If the first one's line is unfinished then, the others' lines wait a moment for
// its end. On a terminal the start of a line that stays unfinished is shown, too: a prompt, or a progress bar, which
// is drawn again after a carriage return. Each of its redraws starts with the rank, and one of another rank replaces it.
//
// output_sink: the launcher's standard output or error as a destination that never blocks the supervision of
// the ranks. Bytes that its reader does not yet take are queued, up to a limit at which writers wait.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/streambuf.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
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
  // Whether unfinished lines are shown here after a moment: to a reader who waits for them.
  virtual bool shows_unfinished_lines() const { return false; }
  // Asks for a call of end_hold() after that moment, unless it is due already.
  virtual void begin_hold() {}
  bool anything_is_held() const { return !holding_.empty(); }
  // Writes the unfinished lines that are held.
  void end_hold();

 private:
  friend class line_prefixer;
  void set_unfinished_line_of(const line_prefixer* one, bool is_redrawn = false) {
    unfinished_line_of_ = one;
    is_unfinished_ = one != nullptr;
    is_redrawn_ = is_unfinished_ && is_redrawn;
  }
  bool is_unfinished_ = false;                         // the last line has no newline
  bool is_redrawn_ = false;                            // and its writer returns to its start
  const line_prefixer* unfinished_line_of_ = nullptr;  // null: its stream has ended
  std::vector<line_prefixer*> waiting_, holding_;
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
  bool waits(std::string_view bytes);
  // Ends another stream's unfinished line, or replaces it if both are redrawn. Then adds the held bytes.
  void add_held(std::string& out);
  // Adds what continues the line that is shown.
  void add_to_line(std::string_view bytes, std::string& out);
  // Adds the lines in the held bytes and these to `out`, and holds the start of an unfinished one.
  void add_lines(std::string_view bytes, std::string& out);
  // Adds `bytes`, with the prefix wherever something is drawn again.
  void add_redraws(std::string_view bytes, std::string& out);
  void hold();
  void end_hold();
  void show_held();
  void end_wait();
  void write(std::string_view bytes);

  int rank_;
  speakers& speakers_;
  line_destination& to_;
  std::string held_;       // the start of a line whose end has not come, or all that waits
  bool in_line_ = false;   // the bytes written last have no newline at their end
  bool returned_ = false;  // what was shown last ends with a carriage return
  bool waiting_ = false;
  bool over_ = false;  // the stream has ended
};

class output_sink : public line_destination {
 public:
  // Throws std::system_error if it cannot watch the descriptor.
  output_sink(boost::asio::io_context& loop, int fd);

  // Bytes after a broken pipe or on a full disk are dropped; see `error`.
  void write(std::string_view bytes) override;

  // Whether more is queued than writers should add to; they wait by `when_relieved`, which is called once.
  bool congested() const { return queue_.size() > congestion_bytes; }
  void when_relieved(std::function<void()> resume) { waiting_.push_back(std::move(resume)); }
  // Called once, from the loop, when everything written so far has left (or never will).
  void when_drained(std::function<void()> done);
  // Called at most once, from the loop, when writing has failed for good.
  void when_broken(std::function<void()> handler) { on_broken_ = std::move(handler); }

  // From now on drops everything once the reader has taken nothing for this long; a longer time than that of
  // an earlier call has no effect. `error` is then ECANCELED.
  void give_up_after(std::chrono::milliseconds patience);

  int error() const { return error_; }  // errno of the write that failed for good; 0: none

 private:
  bool begin_wait() override;
  bool shows_unfinished_lines() const override { return terminal_; }
  void begin_hold() override;

  static constexpr std::size_t congestion_bytes = 64 * 1024;

  ssize_t write_now(std::string_view bytes) const;
  std::size_t write_some(std::string_view bytes);
  void fail(int error);
  void check_reader(std::chrono::milliseconds patience);
  void try_later();
  void flush();

  boost::asio::io_context& loop_;
  boost::asio::steady_timer line_patience_, hold_patience_;
  boost::asio::steady_timer reader_patience_;
  base::unique_fd own_;  // as fd, but the launcher's alone, and non-blocking; empty if there is none
  int fd_;               // own_, if it is there
  bool terminal_ = false;
  std::size_t most_at_once_ = 0;  // how much a writable fd_ takes without blocking; 0: it never blocks
  // An epoll descriptor that watches fd_; closed for a file, which is always writable.
  boost::asio::posix::stream_descriptor ready_;
  std::size_t taken_bytes_ = 0;  // that have left, in total
  boost::asio::streambuf queue_;
  bool retrying_ = false;
  bool gives_up_ = false;
  int error_ = 0;
  std::vector<std::function<void()>> waiting_;
  std::vector<std::function<void()>> draining_;
  std::function<void()> on_broken_;
};

// Whether both descriptors lead to one file, pipe or terminal.
bool same_file(int a, int b);

}  // namespace tutti::launch
