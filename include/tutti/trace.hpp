// SPDX-License-Identifier: Apache-2.0
// trace_span: names parts of the program on the time line of tutti-run --trace and in explanations of hangs.
#pragma once

#include <tutti/status.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

namespace tutti {
namespace detail {
struct span_owner;
}

// Marks, from construction to destruction, a part of the program with this name:
//
//   tutti::trace_span span("forward");
//
// Works on a loop thread, also across co_await, and in work on the compute pool; elsewhere it does nothing.
// Names are told apart by their first 119 characters, and up to about 200 different ones.
// Cost: some 50 ns and no allocation; recording is always on.
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
