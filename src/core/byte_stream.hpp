// SPDX-License-Identifier: Apache-2.0
// byte_stream: what frames are written to and read from: the socket itself, or TLS.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace tutti::core {

class byte_stream {
 public:
  virtual ~byte_stream() = default;
  // Reads into `parts`, in order. Returns the number of bytes, 0 at the end of the stream, -1 with errno;
  // EAGAIN: nothing now. After less than there is room for, the descriptor reports when more has come.
  virtual ssize_t read(iovec* parts, std::size_t count) noexcept = 0;
  // Takes bytes from `parts`, in order, which are not read again. Returns their number, or -1 with errno;
  // EAGAIN: none now. If it returns less than all, the descriptor reports when to go on.
  virtual ssize_t write(const iovec* parts, std::size_t count) noexcept = 0;
  // Sends bytes that write() has taken and the kernel has not. Returns 0 when none are left, or -1 with errno.
  virtual int flush() noexcept { return 0; }
  virtual bool flushed() const noexcept { return true; }
};

// The socket itself. Does not own it.
class socket_stream final : public byte_stream {
 public:
  socket_stream() noexcept = default;
  explicit socket_stream(int fd) noexcept : fd_(fd) {}

  ssize_t read(iovec* parts, std::size_t count) noexcept override {
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    return ::recvmsg(fd_, &message, MSG_DONTWAIT);
  }
  ssize_t write(const iovec* parts, std::size_t count) noexcept override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = count;
    return ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

 private:
  int fd_ = -1;
};

}  // namespace tutti::core
