// SPDX-License-Identifier: Apache-2.0
// One side of a TLS 1.3 session over a non-blocking socket, as a stream of bytes.
//
// Data are first encrypted into memory of the session, and sent from there. So data that write() has taken
// need not be passed again, however little room the kernel has.
//
// The sessions themselves are in a module (tls_openssl.cpp) that is opened when TLS is requested: loading
// OpenSSL takes a process longer than joining a world.
#pragma once

#include "core/byte_stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/tls.hpp>

namespace tutti::core {

// EBADMSG of read() and write(): the other side, or somebody in between, broke the protocol. read() fills all of
// `parts` unless no more data have come. write() takes all of them unless the socket has no room.
class tls_session : public byte_stream {
 public:
  enum class side { connecting, accepting };
  using binding_bytes = std::array<std::uint8_t, 32>;

  tls_session() = default;
  tls_session(const tls_session&) = delete;
  tls_session& operator=(const tls_session&) = delete;

  enum class step { done, wait_to_read, wait_to_write, failed, ended };  // ended: the connection
  // Takes one more step of the TLS handshake.
  virtual step shake_hands() = 0;
  // Gets a value that is unique to this session, after the handshake. Returns false if there is none.
  virtual bool bind(binding_bytes& value) const noexcept = 0;
  // Whether the other side's certificate, if it names ranks, names this one (-1: whether it names none).
  virtual bool allows_rank(std::int32_t rank) const = 0;
  // A text that says what went wrong.
  virtual const std::string& complaint() const noexcept = 0;
};

// What all sessions of a process share.
class tls_context : public std::enable_shared_from_this<tls_context> {
 public:
  tls_context() = default;
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;
  virtual ~tls_context() = default;
  // Opens a session over a connected socket, which outlives it. Throws std::bad_alloc.
  virtual std::unique_ptr<tls_session> open(int fd, tls_session::side s) const = 0;
};

// The module's only symbol. Its function returns null and says `why` on failure, and if it is a `wrong_file`.
inline constexpr const char* tls_module_symbol = "tutti_tls_context_2";
using tls_module_function = tls_context*(const std::string& certificate, const std::string& key,
                                         const std::string& authority, std::string& why, bool& wrong_file);

}  // namespace tutti::core
