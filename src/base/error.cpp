// SPDX-License-Identifier: Apache-2.0
#include <tutti/error.hpp>

namespace tutti {
namespace {

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "tutti"; }
  std::string message(int code) const override {
    switch (static_cast<errc>(code)) {
      case errc::success:
        return "success";
      case errc::invalid_argument:
        return "invalid argument";
      case errc::wrong_thread:
        return "used outside the runtime's loop thread";
      case errc::truncated:
        return "the message is longer than the receive buffer";
      case errc::timed_out:
        return "timed out";
      case errc::cancelled:
        return "cancelled";
      case errc::peer_failed:
        return "a peer failed";
      case errc::peer_left:
        return "a peer has left";
      case errc::mismatch:
        return "ranks called different collectives";
      case errc::communicator_failed:
        return "the communicator has failed";
      case errc::shut_down:
        return "the runtime has ended";
      case errc::join_failed:
        return "the world could not be formed";
      case errc::unauthorized:
        return "the peer is not authorised";
      case errc::protocol:
        return "protocol violation";
      case errc::not_supported:
        return "not supported here";
      case errc::resources:
        return "a resource ran out";
      case errc::device_failed:
        return "a device failed";
      case errc::system:
        return "a system call failed";
    }
    return "unknown tutti error";
  }
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::invalid_argument:
        return std::errc::invalid_argument;
      case errc::timed_out:
        return std::errc::timed_out;
      case errc::cancelled:
        return std::errc::operation_canceled;
      case errc::truncated:
        return std::errc::message_size;
      case errc::not_supported:
        return std::errc::not_supported;
      default:
        return {code, *this};
    }
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const category instance;
  return instance;
}

std::error_code make_error_code(errc code) noexcept { return {static_cast<int>(code), error_category()}; }

error::error(errc code, const std::string& text)
    : std::system_error(make_error_code(code), text), text_(text) {}

}  // namespace tutti
