// SPDX-License-Identifier: Apache-2.0
// All output of a job: the ranks' streams on their way to the launcher's standard output and error and to log
// files, and the launcher's own words among them.
#pragma once

#include <boost/asio/io_context.hpp>
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
  rank_pipes connect(int rank);

  // Lines of the launcher's own, on standard error.
  void say(std::string_view lines) { author_.say(lines); }

  // Lines of several ranks have met, so that the last ones of one rank are hard to find.
  bool mixed() const { return speakers_.mixed(); }
  // The last complete lines that `rank` wrote to standard error, at most `count`.
  std::vector<std::string> last_error_lines(int rank, std::size_t count) const;

  // The ranks are gone: calls `done` when all they wrote has been passed on to the sinks...
  void finish(std::function<void()> done);
  // ...and this one when it has left the sinks too.
  void drain(std::function<void()> done);

  // What could not be written, as lines for the user; empty if all is well.
  std::string losses() const;

 private:
  struct rank_pumps {
    int rank;
    std::unique_ptr<output_pump> output;
    std::unique_ptr<output_pump> error;
  };

  std::unique_ptr<output_pump> connect_stream(int rank, base::unique_fd& writer, output_sink& to,
                                              const char* suffix);
  base::unique_fd open_log(int rank, const char* suffix) const;
  output_sink& error_sink() { return separate_error_ ? *separate_error_ : output_; }
  void pump_closed();

  boost::asio::io_context& loop_;
  std::string log_dir_;
  speakers speakers_;
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
