// SPDX-License-Identifier: Apache-2.0
// connection: one TCP connection of a link: its socket, its outbox and its inbox.
#pragma once

#include "base/unique_fd.hpp"
#include "core/backend.hpp"
#include "core/tls.hpp"
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

  // Attaches a connected socket. Throws errc::resources or std::bad_alloc, and then leaves this unchanged.
  void attach(base::unique_fd fd, std::unique_ptr<core::tls_session> tls, core::backend& backend);
  // Closes it. With `abort` the kernel drops unsent data, and the peer gets a reset.
  void shut(bool abort) noexcept;
  bool stands() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }
  core::byte_stream& stream() noexcept { return *stream_; }
  bool has_queue() const noexcept { return !out.empty() || !stream_->flushed(); }
  // Ends the sending direction. Once: every call of shutdown() causes an event of the descriptor.
  void end_writing() noexcept;

  void on_ready(bool readable, bool writable) noexcept override;

  outbox out;
  inbox in;
  bool writable = false;
  int send_error = 0;  // sending has failed; earlier data of the peer are still read
  bool again = false;  // there is work that the descriptor will not report
  // For a further connection: the peer has it, too, so that it may carry data.
  bool usable = false;
  bool ended = false;  // the peer has sent all that it will

 private:
  tcp_link& of_;
  base::unique_fd fd_;
  core::socket_stream socket_;  // fd_
  std::unique_ptr<core::tls_session> tls_;
  core::byte_stream* stream_ = &socket_;  // one of the two
  core::backend* backend_ = nullptr;
  core::backend::handle watch_ = 0;
  bool ends_writing_ = false;
};

}  // namespace tutti::transport::tcp
