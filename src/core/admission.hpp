// SPDX-License-Identifier: Apache-2.0
// What unauthenticated peers may cost a listener: so many connections at a time that have not proved who they
// are, each for so long, and a line in the log for each host that they call from.
//
// When all places are taken, one is freed for a newcomer: of the source that has most of them the connection
// that has been there longest, unless it came so lately that an honest peer may still be answering. So
// callers who never prove anything pass through, many a second, without keeping out those who do. Who was
// turned out for want of room tries again: connecting sides do that when they are cut off in the middle.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/socket_io.hpp"
#include "core/wakeup.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tutti::core {

struct admission_tag;

class admission {
 public:
  struct limits {
    int places = 128;
    std::chrono::milliseconds time{2000};    // to prove oneself, in all
    std::chrono::milliseconds courtesy{50};  // nobody is turned out sooner
  };
  admission(const boost::asio::any_io_executor& executor, limits most);
  explicit admission(const boost::asio::any_io_executor& executor) : admission(executor, limits()) {}
  admission(const admission&) = delete;
  admission& operator=(const admission&) = delete;

  // A connection that has not proved itself yet; in the frame of what serves it. Ends with this object.
  class pending_connection : public base::list_hook<admission_tag> {
   public:
    pending_connection(admission& at, stream_socket& socket);
    pending_connection(const pending_connection&) = delete;
    pending_connection& operator=(const pending_connection&) = delete;
    ~pending_connection();
    time_point deadline() const noexcept { return since_ + of_.most_.time; }
    const std::string& from() const noexcept { return from_; }  // address and port
    // It has been turned out: its reads and writes end with errc::cancelled.
    bool turned_out() const noexcept { return turned_out_; }

   private:
    friend class admission;
    admission& of_;
    stream_socket& socket_;
    const std::string from_;
    const time_point since_;
    bool turned_out_ = false;
  };

  // Whether one more may come in; turns one out when that makes it possible.
  bool has_room() noexcept;
  // Completes when it is worth asking again. One waits at a time.
  task<> wait_for_room();

  // In all, for reports and tests.
  int present() const noexcept { return present_; }
  std::size_t turned_out() const noexcept { return turned_out_; }

 private:
  pending_connection* most_expendable() noexcept;

  const limits most_;
  base::intrusive_list<pending_connection, admission_tag> pending_;  // in the order of coming
  int present_ = 0;
  std::size_t turned_out_ = 0;
  wakeup change_;
};

// Tells why somebody was not let in: once for each source, and of so many sources.
class unauthenticated_log {
 public:
  // `what`: whose port.
  explicit unauthenticated_log(std::string what) : what_(std::move(what)) {}
  // `from` as of a pending connection.
  void report(const std::string& from, const char* why);

 private:
  const std::string what_;
  std::vector<std::string> reported_;  // sources
};

}  // namespace tutti::core
