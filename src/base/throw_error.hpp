// SPDX-License-Identifier: Apache-2.0
// Makes a tutti::error: with a formatted text, or again.
#pragma once

#include <fmt/format.h>

#include <tutti/error.hpp>
#include <utility>

namespace tutti::base {

template <class... Arguments>
[[noreturn]] void throw_error(errc code, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw error(code, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// The error in what as_result() has returned, to be thrown after all.
template <class Result>
error error_of(const Result& failed) {
  return error(static_cast<errc>(failed.error.value()), failed.message);
}

}  // namespace tutti::base
