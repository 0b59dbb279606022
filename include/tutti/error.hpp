// SPDX-License-Identifier: Apache-2.0
// Errors: one enumeration, one exception type.
#pragma once

#include <boost/system/error_code.hpp>

#include <string>
#include <system_error>
#include <type_traits>

namespace tutti {

// What went wrong. Every tutti::error carries one of these; compare with `e.code() ==
// tutti::errc::truncated`.
enum class errc {
  success = 0,
  invalid_argument,  // invalid rank, tag, buffer, option or environment variable
  wrong_thread,      // a communicator used outside its runtime's loop thread
  truncated,         // a message longer than the receive buffer; nothing was written past the buffer's end
  timed_out,         // the deadline passed; the text names the ranks that had not arrived, where known
  cancelled,         // ended by a cancellation slot, by dropping the request, or by the peer's cancellation
  peer_failed,       // a peer died or its connection broke
  peer_left,         // a peer finished and left while this rank still waited for it
  mismatch,          // ranks called different collectives, roots, counts, element types or ops
  communicator_failed,  // an earlier failure made this communicator unusable
  shut_down,            // the runtime ended while the operation was pending
  join_failed,          // the world could not be formed (a rank missing, doubled, or contradictory)
  unauthorized,         // the peer could not prove that it knows the job's secret
  protocol,             // bytes that no tutti peer of this version sends
  not_supported,        // this build or this machine lacks what was asked for
  resources,            // memory, descriptors or another limit ran out
  device_failed,  // a GPU or its library reported an error; what else was under way on it fails with the same
  system          // a system call failed in a way that has no better name here
};

const std::error_category& error_category() noexcept;
std::error_code make_error_code(errc code) noexcept;

// What co_await throws. `what()` names the operation, the communicator, the rank at fault and the likely
// cure.
class error : public std::system_error {
 public:
  error(errc code, const std::string& text);
  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // its copy cannot throw, which an exception needs
};

}  // namespace tutti

template <>
struct std::is_error_code_enum<tutti::errc> : std::true_type {};
template <>
struct boost::system::is_error_code_enum<tutti::errc> : std::true_type {};
