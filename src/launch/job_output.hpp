// SPDX-License-Identifier: Apache-2.0
// job_output: all output of a job: the ranks' streams on their way to the launcher's standard output,
// standard error and log files, and the launcher's own lines among them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/output_sink.hpp"

namespace tutti::launch {

// Carries one output stream of one rank from its pipe to the launcher's output and a log file, and keeps its
// last lines. It reads no faster than the reader of the launcher's output does.
class output_pump {
 public:
  struct route {
    base::unique_fd source;  // the reading end of the pipe; the pump takes it
    base::unique_fd log;     // may be empty
    // Called with errno when a write to the log file has failed; nothing more goes there.
    std::function<void(int)> log_failed = {};
    bool shown = true;  // on the launcher's output
  };
  // `closed` is called once, when nothing more will come.
  output_pump(boost::asio::io_context& loop, int rank, route way, speakers& all, output_sink& to,
              std::function<void()> closed);

  // Waits for bytes, and carries them.
  void start();
  // The rank and its group are gone: passes on what is in the pipe now and closes, even if a process that
  // left the group still holds the other end.
  void finish();

  int rank() const { return rank_; }
  bool closed() const { return !source_.is_open(); }
  // The end of the stream so far, a few kilobytes.
  std::string_view tail() const { return tail_; }

 private:
  void transfer();
  void deliver(std::string_view bytes);
  void close();

  int rank_;
  route way_;
  boost::asio::posix::stream_descriptor source_;
  output_sink& to_;
  line_prefixer prefixer_;
  std::string tail_;
  std::function<void()> closed_;
  bool waiting_ = false;
  std::optional<std::size_t> left_bytes_;  // to read before closing, once finish() was called
};

class job_output {
 public:
  // `reader_gone` is called when no process reads standard output any more. Throws std::runtime_error if the
  // log directory cannot be made.
  job_output(boost::asio::io_context& loop, const options& o, std::function<void()> reader_gone);

  // The writing ends are for the rank; the reading ends are served from now on. Throws std::system_error.
  struct rank_pipes {
    base::unique_fd output;
    base::unique_fd error;
  };
  // That the rank was started `restarts` times before is in the names of its logs.
  rank_pipes connect(int rank, int restarts);

  // The ranks start anew: earlier output is forgotten.
  void begin_start() { pumps_.clear(); }

  // Prints lines of the launcher's own on standard error.
  void say(std::string_view lines) { error_sink().say(lines); }

  // Whether the user may not have seen the last lines of a rank: lines of several ranks mix, or none are
  // printed.
  bool hard_to_find() const { return quiet_ || speakers_.mixed(); }
  // Returns the last complete lines that `rank` wrote to standard error, at most `count`.
  std::vector<std::string> last_error_lines(int rank, std::size_t count) const;

  // The ranks are gone: calls `done` when all their output has been passed to the sinks. Processes that still
  // hold their pipes, such as the tee of a tracked console, get half a second.
  void finish(std::function<void()> done);
  // Calls `done` when the output has left the sinks, too.
  void drain(std::function<void()> done);

  // Drops output that its reader takes nothing of for this long.
  void give_up_after(std::chrono::milliseconds patience);

  // Whether something could not be written.
  bool incomplete() const { return log_incomplete_ || !losses().empty(); }
  // What the user has not been told of that, as lines.
  std::string losses() const;

 private:
  base::unique_fd connect_stream(std::list<output_pump>& made, int rank, int restarts, const char* suffix,
                                 output_sink& to);
  output_sink& error_sink() { return separate_error_ ? *separate_error_ : output_; }
  void pump_closed();

  boost::asio::io_context& loop_;
  boost::asio::steady_timer patience_{loop_};
  std::string log_dir_;
  bool quiet_;
  bool log_incomplete_ = false;
  speakers speakers_;
  output_sink output_;
  // Empty if both streams lead to the same place: one queue then keeps lines of the two from mixing.
  std::unique_ptr<output_sink> separate_error_;
  std::list<output_pump> pumps_;  // of each start of a rank that of its output, then that of its errors
  std::size_t open_pumps_ = 0;
  std::function<void()> finished_;
};

}  // namespace tutti::launch
