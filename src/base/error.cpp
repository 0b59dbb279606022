// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <iterator>
#include <tutti/error.hpp>
#include <utility>

namespace tutti {
namespace {

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "tutti"; }
  std::string message(int code) const override {
    // In the order of errc.
    static constexpr const char* texts[] = {
        "success",
        "invalid argument",
        "used outside the runtime's loop thread",
        "the message is longer than the receive buffer",
        "timed out",
        "cancelled",
        "a peer failed",
        "a peer has left",
        "ranks called different collectives",
        "the communicator has failed",
        "the runtime has ended",
        "the world could not be formed",
        "the peer is not authorised",
        "protocol violation",
        "not supported here",
        "a resource ran out",
        "a device failed",
        "a system call failed",
    };
    static_assert(std::size(texts) == static_cast<std::size_t>(errc::system) + 1);
    return code >= 0 && code <= static_cast<int>(errc::system) ? texts[code] : "unknown tutti error";
  }
  std::error_condition default_error_condition(int code) const noexcept override {
    static constexpr std::pair<errc, std::errc> generic[] = {
        {errc::invalid_argument, std::errc::invalid_argument},
        {errc::timed_out, std::errc::timed_out},
        {errc::cancelled, std::errc::operation_canceled},
        {errc::truncated, std::errc::message_size},
        {errc::not_supported, std::errc::not_supported}};
    for (const auto& [ours, theirs] : generic)
      if (code == static_cast<int>(ours)) return theirs;
    return {code, *this};
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
