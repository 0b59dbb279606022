// SPDX-License-Identifier: Apache-2.0
// Errors: one enumeration and one exception type.
#pragma once

#include <boost/system/error_code.hpp>

#include <string>
#include <system_error>
#include <type_traits>

namespace tutti {

// The kind of an error. Every tutti::error carries one: compare with `e.code() == tutti::errc::truncated`.
enum class errc {
  success = 0,
  // Invalid rank, tag, buffer, option or environment variable.
  invalid_argument,
  // A communicator used outside its runtime's loop thread.
  wrong_thread,
  // A message longer than the receive buffer; nothing was written past the buffer's end.
  truncated,
  // The deadline passed; the text names the ranks that had not arrived, where known.
  timed_out,
  // Ended by a cancellation slot, a dropped request or a stopped scope, here or on a peer; or by abort().
  cancelled,
  // A peer died or its connection broke.
  peer_failed,
  // A peer left in order while this rank still waited for it.
  peer_left,
  // Ranks called different collectives, roots, counts, element types or reductions.
  mismatch,
  // An earlier failure made this communicator unusable.
  communicator_failed,
  // The runtime ended while the operation was pending.
  shut_down,
  // The world could not be formed: a rank is missing, there twice, or contradicts the others.
  join_failed,
  // The peer could not prove that it knows the job's secret.
  unauthorized,
  // The peer sent bytes that no tutti peer of this version sends.
  protocol,
  // This build or this machine lacks the requested feature.
  not_supported,
  // Memory, descriptors or another limit ran out.
  resources,
  // A GPU or its library reported an error; all other work in flight on that device fails with it.
  device_failed,
  // A system call failed in a way that has no better name here.
  system
};

// The category of errc, named "tutti".
const std::error_category& error_category() noexcept;
std::error_code make_error_code(errc code) noexcept;

// What co_await throws. `what()` names the operation, the communicator, the rank at fault and the likely cure.
class error : public std::system_error {
 public:
  error(errc code, const std::string& text);
  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // copying it cannot throw, as an exception requires
};

}  // namespace tutti

template <>
struct std::is_error_code_enum<tutti::errc> : std::true_type {};
template <>
struct boost::system::is_error_code_enum<tutti::errc> : std::true_type {};
