// SPDX-License-Identifier: Apache-2.0
// The program's own parts on the time line of tutti-run --trace, and in what is said of a hang.
#pragma once

#include <tutti/status.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

namespace tutti {
namespace detail {
struct span_owner;
}

// From its construction to its destruction the rank is in a part of the program with this name:
//   tutti::trace_span span("forward");
// On a loop thread, also across co_await, or in what runs on the compute pool; elsewhere it does nothing.
// Always on record (some 50 ns, no allocation): names beyond about 200 different ones, and all beyond the
// 119th character, are not told apart.
class [[nodiscard("a span ends when it is destroyed: give it a name")]] trace_span {
 public:
  explicit trace_span(std::string_view name, call_site where = call_site::current()) noexcept;
  trace_span(const trace_span&) = delete;
  trace_span& operator=(const trace_span&) = delete;
  ~trace_span();

 private:
  std::shared_ptr<detail::span_owner> owner_;
  std::uint64_t number_ = 0;
  std::uint64_t start_ = 0;
  std::uint32_t place_ = 0;
};

}  // namespace tutti
