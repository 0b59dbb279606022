// SPDX-License-Identifier: Apache-2.0
// Throws a tutti::error with a formatted text.
#pragma once

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <utility>

namespace tutti::base {

template <class... Arguments>
[[noreturn]] void throw_error(errc code, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw error(code, fmt::format(text, std::forward<Arguments>(arguments)...));
}

}  // namespace tutti::base
