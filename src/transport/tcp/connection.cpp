// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/connection.hpp"

#include "transport/tcp/tcp_link.hpp"

#include <sys/socket.h>

namespace tutti::transport::tcp {

void connection::attach(base::unique_fd fd, std::unique_ptr<core::tls_session> tls, core::backend& backend) {
  in.open();
  watch_ = backend.watch_hot(fd.get(), *this);
  backend_ = &backend;
  socket_ = core::socket_stream(fd.get());
  stream_ = &socket_;
  if (tls) stream_ = tls.get();
  tls_ = std::move(tls);
  fd_ = std::move(fd);
  writable = true;
}

void connection::shut(bool abort) noexcept {
  in.stop();
  if (!fd_) return;
  backend_->unwatch(watch_);
  if (abort) {
    const linger at_once{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  // An io_uring that watched the socket may hold it open a moment longer than close() does.
  ::shutdown(fd_.get(), SHUT_RDWR);
  fd_.reset();
}

void connection::end_writing() noexcept {
  if (fd_ && !std::exchange(ends_writing_, true)) ::shutdown(fd_.get(), SHUT_WR);
}

void connection::on_ready(bool readable, bool is_writable) noexcept {
  of_.on_ready(*this, readable, is_writable);
}

}  // namespace tutti::transport::tcp
