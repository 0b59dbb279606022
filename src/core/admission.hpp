// SPDX-License-Identifier: Apache-2.0
// Limits what unauthenticated peers can cost a listener: connections, time, and one log line per host.
//
// When all places are taken, one is freed for a newcomer: the oldest connection of the source that has most,
// unless it came so lately that an honest peer may still be answering. So callers that never prove anything
// pass through without keeping out those that do. An evicted peer connects again.
#pragma once

#include "base/intrusive_list.hpp"
#include "core/socket_io.hpp"
#include "core/wakeup.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::core {

struct admission_tag;

class admission {
 public:
  struct limits {
    int places = 128;
    std::chrono::milliseconds time{2000};    // for the whole proof
    std::chrono::milliseconds courtesy{50};  // no connection is evicted sooner
  };
  admission(const boost::asio::any_io_executor& executor, limits most);
  explicit admission(const boost::asio::any_io_executor& executor) : admission(executor, limits()) {}
  admission(const admission&) = delete;
  admission& operator=(const admission&) = delete;

  // A connection that has not proved itself yet; lives in the frame of the coroutine that serves it.
  class pending_connection : public base::list_hook<admission_tag> {
   public:
    pending_connection(admission& at, stream_socket& socket);
    pending_connection(const pending_connection&) = delete;
    pending_connection& operator=(const pending_connection&) = delete;
    ~pending_connection();
    time_point deadline() const noexcept { return since_ + of_.most_.time; }
    const std::string& from() const noexcept { return from_; }  // address and port
    // Whether it has been evicted: its reads and writes then end with errc::cancelled.
    bool turned_out() const noexcept { return turned_out_; }

   private:
    friend class admission;
    admission& of_;
    stream_socket& socket_;
    const std::string from_;
    const time_point since_;
    bool turned_out_ = false;
  };

  // Whether one more connection may come in; evicts one if that makes room.
  bool has_room() noexcept;
  // Completes when it is worth asking again. One coroutine waits at a time.
  task<> wait_for_room();
  using listener = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;
  // Accepts connections while there is room, and gives them to `take`, until `from`, which is non-blocking and
  // outlives the task, is closed. `name` is for log lines. Without descriptors newcomers wait in the kernel.
  task<> accept_all(listener& from, std::string name, std::function<void(stream_socket)> take);

  // Totals, for reports and tests.
  int present() const noexcept { return present_; }
  std::size_t turned_out() const noexcept { return turned_out_; }

 private:
  pending_connection* most_expendable() noexcept;
  // Returns false if the next connection cannot be accepted now.
  bool accept_some(listener& from, const std::string& name, const std::function<void(stream_socket)>& take);

  const limits most_;
  base::intrusive_list<pending_connection, admission_tag> pending_;  // in order of arrival
  int present_ = 0;
  std::size_t turned_out_ = 0;
  bool shortage_reported_ = false;
  wakeup change_;
};

// Logs why a peer was rejected: once for each source, up to a number of sources.
class unauthenticated_log {
 public:
  // `what` names the listener.
  explicit unauthenticated_log(std::string what) : what_(std::move(what)) {}
  // `from` as of a pending connection.
  void report(const std::string& from, const char* why);

 private:
  const std::string what_;
  std::vector<std::string> reported_;  // sources
};

}  // namespace tutti::core
