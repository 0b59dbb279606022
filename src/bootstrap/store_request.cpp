// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/store_request.hpp"

#include "base/fields.hpp"
#include "base/text.hpp"

#include <algorithm>

namespace tutti {
constexpr auto highest(errc) { return errc::system; }
}  // namespace tutti

namespace tutti::bootstrap {

constexpr auto highest(store_operation) { return store_operation::append; }

namespace {

constexpr const char* malformed_message =
    "a store message is damaged, or another version of tutti has sent it";

// In the order of store_operation.
constexpr std::string_view operation_names[] = {"",      "set",   "get",   "wait", "add", "compare_exchange",
                                                "erase", "count", "append"};

}  // namespace

std::chrono::milliseconds store_request::timeout() const noexcept {
  constexpr std::uint64_t longest = std::chrono::milliseconds(std::chrono::hours(24 * 3653)).count();
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(timeout_ms, longest)));
}

std::string title_of(const store_request& what, const std::string& store) {
  return fmt::format("{}('{}') on {}", operation_names[static_cast<std::size_t>(what.operation)], what.key,
                     store);
}

void throw_missing_key(const store_request& what, const std::string& store) {
  if (what.timeout_ms == 0)
    base::throw_error(errc::timed_out, "{}: there is no such key", title_of(what, store));
  base::throw_error(
      errc::timed_out,
      "{}: nobody has set the key within {}; the rank that should has not come so far or has failed: look at "
      "its output, or allow more time (TUTTI_TIMEOUT, in seconds)",
      title_of(what, store), base::duration_text(what.timeout()));
}

std::string encode(const store_request& request) { return base::to_bytes(request); }
std::string encode(const store_answer& answer) { return base::to_bytes(answer); }

store_request decode_request(std::string_view message) {
  store_request request = base::from_bytes<store_request>(message, malformed_message);
  if (request.operation < store_operation::set) throw error(errc::protocol, malformed_message);
  return request;
}

store_answer decode_answer(std::string_view message) {
  return base::from_bytes<store_answer>(message, malformed_message);
}

}  // namespace tutti::bootstrap
