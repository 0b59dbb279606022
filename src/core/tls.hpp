// SPDX-License-Identifier: Apache-2.0
// One side of a TLS 1.3 session over a non-blocking socket, in the terms of recv and send.
//
// What is to be sent is encrypted into memory of the session first and leaves from there. So what write() has
// taken is taken, however little of it the kernel has room for, and nobody has to come again with the same
// bytes.
//
// The sessions themselves are in a module (tls_openssl.cpp) that is opened when TLS is asked for: loading
// OpenSSL takes a process longer than joining a world.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/tls.hpp>

namespace tutti::core {

class tls_session {
 public:
  enum class side { connecting, accepting };
  using binding_bytes = std::array<std::uint8_t, 32>;

  tls_session() = default;
  tls_session(const tls_session&) = delete;
  tls_session& operator=(const tls_session&) = delete;
  virtual ~tls_session() = default;

  enum class step { done, wait_to_read, wait_to_write, failed, ended };  // ended: the connection
  // One more step of the handshake.
  virtual step shake_hands() = 0;
  // A value of this very session, which nobody else has; once the handshake is done. False: there is none.
  virtual bool bind(binding_bytes& value) const noexcept = 0;
  // Whether the other side's certificate, where it names ranks, names this one.
  virtual bool allows_rank(std::int32_t rank) const = 0;
  // What went wrong, for people.
  virtual const std::string& complaint() const noexcept = 0;

  // As recvmsg and sendmsg on a non-blocking socket; EBADMSG: the other side broke the protocol, or somebody
  // in between did. read() fills all of `parts` unless nothing more has come. write() takes all of them
  // unless the socket has no room.
  virtual ssize_t read(iovec* parts, std::size_t count) noexcept = 0;
  virtual ssize_t write(const iovec* parts, std::size_t count) noexcept = 0;
  // Sends what has been taken and not sent: 0 when nothing of it is left, else -1 with errno.
  virtual int flush() noexcept = 0;
  virtual bool flushed() const noexcept = 0;
};

// What all sessions of a process have in common.
class tls_context : public std::enable_shared_from_this<tls_context> {
 public:
  tls_context() = default;
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;
  virtual ~tls_context() = default;
  // Over a connected socket, which outlives the session.
  virtual std::unique_ptr<tls_session> open(int fd, tls_session::side s) const = 0;
};

// The module's only name. Null: it cannot be done, and `why` says why; `wrong_file` then: because of one of
// the files.
inline constexpr const char* tls_module_symbol = "tutti_tls_context_1";
using tls_module_function = tls_context*(const std::string& certificate, const std::string& key,
                                         const std::string& authority, std::string& why, bool& wrong_file);

}  // namespace tutti::core
