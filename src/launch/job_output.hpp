// SPDX-License-Identifier: Apache-2.0
// All output of a job: the ranks' streams on their way to the launcher's standard output and error and to log
// files, and the launcher's own words among them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/output_pump.hpp"
#include "launch/output_sink.hpp"

namespace tutti::launch {

class job_output {
 public:
  // `reader_gone` is called when nobody reads standard output any more. Throws std::runtime_error when the
  // log directory cannot be made.
  job_output(boost::asio::io_context& loop, const options& o, std::function<void()> reader_gone);

  // The writing ends are for the rank; the reading ends are carried from now on. Throws std::system_error.
  struct rank_pipes {
    base::unique_fd output;
    base::unique_fd error;
  };
  rank_pipes connect(int rank, int restarts = 0);  // of this rank alone: with logs of its own

  // What comes from here on is that of ranks that were started so many times before: it has logs of its own,
  // and what earlier ones said is forgotten.
  void begin_start(int restart_count);

  // Lines of the launcher's own, on standard error.
  void say(std::string_view lines) { author_.say(lines); }

  // The user has not just seen the last lines of a rank: those of several have met, or none are printed.
  bool hard_to_find() const { return quiet_ || speakers_.mixed(); }
  // The last complete lines that `rank` wrote to standard error, at most `count`.
  std::vector<std::string> last_error_lines(int rank, std::size_t count) const;

  // The ranks are gone: calls `done` when all they wrote has been passed on to the sinks. What still holds their
  // pipes, such as the tee of a tracked console, has half a second for their last words...
  void finish(std::function<void()> done);
  // ...and this one when it has left the sinks too.
  void drain(std::function<void()> done);

  // Something could not be written.
  bool incomplete() const;
  // What the user has not been told of that, as lines.
  std::string losses() const;

 private:
  struct rank_pumps {
    int rank;
    std::unique_ptr<output_pump> output;
    std::unique_ptr<output_pump> error;
  };

  // Where output goes that nobody wants to see.
  struct silence : line_destination {
    void write(std::string_view) override {}
  };

  std::unique_ptr<output_pump> connect_stream(int rank, int restarts, base::unique_fd& writer,
                                              output_sink& to, const char* suffix);
  std::string log_name(int rank, int restarts, const char* suffix) const;
  base::unique_fd open_log(const std::string& name) const;
  void log_failed(const std::string& name, int error);
  output_sink& error_sink() { return separate_error_ ? *separate_error_ : output_; }
  void pump_closed();

  boost::asio::io_context& loop_;
  boost::asio::steady_timer patience_;
  std::string log_dir_;
  bool quiet_;
  int restart_count_ = 0;
  bool log_incomplete_ = false;
  speakers speakers_;
  silence nowhere_;
  output_sink output_;
  // Empty when both streams lead to the same place: one queue then keeps lines of the two from cutting into
  // each other.
  std::unique_ptr<output_sink> separate_error_;
  line_author author_;
  std::vector<rank_pumps> pumps_;
  std::size_t open_pumps_ = 0;
  std::function<void()> finished_;
};

}  // namespace tutti::launch
