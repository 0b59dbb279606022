// SPDX-License-Identifier: Apache-2.0
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
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/line_prefixer.hpp"

namespace tutti::launch {

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

  static constexpr std::size_t congestion_bytes = 64 * 1024;

  ssize_t write_now(std::string_view bytes) const;
  std::size_t write_some(std::string_view bytes);
  void fail(int error);
  void check_reader(std::chrono::milliseconds patience);
  void try_later();
  void flush();

  boost::asio::io_context& loop_;
  boost::asio::steady_timer line_patience_;
  boost::asio::steady_timer reader_patience_;
  base::unique_fd own_;           // as fd, but the launcher's alone, and non-blocking; empty if there is none
  int fd_;                        // own_, if it is there
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
