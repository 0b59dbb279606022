// SPDX-License-Identifier: Apache-2.0
// One TCP connection of a link: its socket, what waits to leave through it, and what has come.
#pragma once

#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "transport/tcp/byte_stream.hpp"
#include "transport/tcp/inbox.hpp"
#include "transport/tcp/outbox.hpp"

#include <memory>
#include <utility>

namespace tutti::transport::tcp {

class tcp_link;

class connection final : public core::watcher {
 public:
  connection(tcp_link& of, int peer, inbound& up, bool checksums) noexcept
      : out(checksums), in(peer, up, checksums), of_(of) {}
  ~connection() { shut(false); }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // It stands. Throws errc::resources, and then it is as before.
  void attach(base::unique_fd fd, std::unique_ptr<core::tls_session> tls, core::backend& backend);
  // Closes it; `abort`: what the kernel has not sent is thrown away, and the peer gets a reset.
  void shut(bool abort) noexcept;
  bool stands() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }
  byte_stream& stream() noexcept { return *stream_; }
  bool has_queue() const noexcept { return !out.empty() || !stream_->flushed(); }
  // Nothing follows in this direction. Once: every call of shutdown() makes the descriptor tell something.
  void end_writing() noexcept;

  void on_ready(bool readable, bool writable) noexcept override;

  outbox out;
  inbox in;
  bool writable = false;
  int send_error = 0;  // sending has failed; what the peer had sent before is still read
  bool again = false;  // there is something to do of which the descriptor will not tell
  // Of a further connection: the peer has it, too, so that it may carry something.
  bool usable = false;
  bool ended = false;  // the peer has sent all that it will

 private:
  tcp_link& of_;
  base::unique_fd fd_;
  socket_stream socket_;  // fd_
  std::unique_ptr<tls_stream> secured_;
  byte_stream* stream_ = &socket_;  // one of the two
  core::backend* backend_ = nullptr;
  core::backend::handle watch_ = 0;
  bool ends_writing_ = false;
};

}  // namespace tutti::transport::tcp
