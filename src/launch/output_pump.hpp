// SPDX-License-Identifier: Apache-2.0
// output_pump: carries one output stream of one rank from its pipe to the launcher's output and a log file,
// and keeps its last lines. It reads no faster than the reader of the launcher's output does.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"
#include "launch/line_prefixer.hpp"
#include "launch/output_sink.hpp"

namespace tutti::launch {

class output_pump {
 public:
  struct route {
    base::unique_fd source;  // the reading end of the pipe
    base::unique_fd log;     // may be empty
    // Called with errno when a write to the log file has failed; nothing more goes there.
    std::function<void(int)> log_failed = {};
    bool shown = true;  // on the launcher's output
  };
  // `closed` is called once, when nothing more will come.
  output_pump(boost::asio::io_context& loop, int rank, route way, speakers& all, output_sink& to,
              std::function<void()> closed);

  void start();
  // The rank and its group are gone: passes on what is in the pipe now and closes, even if a process that
  // left the group still holds the other end.
  void finish();

  bool closed() const { return !source_.is_open(); }
  // The end of the stream so far, a few kilobytes.
  std::string_view tail() const { return tail_; }

 private:
  void wait();
  void transfer();
  void deliver(std::string_view bytes);
  void write_log(std::string_view bytes);
  void close();

  boost::asio::posix::stream_descriptor source_;
  base::unique_fd log_;
  std::function<void(int)> log_failed_;
  output_sink& to_;
  line_prefixer prefixer_;
  bool shown_;
  std::string tail_;
  std::function<void()> closed_;
  bool waiting_ = false;
  std::optional<std::size_t> left_bytes_;  // to read before closing, once finish() was called
};

}  // namespace tutti::launch
