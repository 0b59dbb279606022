// SPDX-License-Identifier: Apache-2.0
// Draws with carriage returns, without a terminal library.
#include "train_digits/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <string_view>

namespace train_digits {
namespace {

constexpr const char* erase_to_end_of_line = "\033[K";
constexpr std::size_t bar_width = 30;
constexpr std::chrono::milliseconds redraw_after{50};

}  // namespace

bool output_is_terminal() noexcept {
  const char* told = std::getenv("TUTTI_TTY");
  if (told != nullptr && *told != '\0') return std::string_view(told) == "1";
  return isatty(STDOUT_FILENO) == 1;
}

void progress::bar(const std::string& label, std::size_t done, std::size_t total, const std::string& note) {
  if (out_ == nullptr || !terminal_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + redraw_after;
  const std::size_t full = std::min(bar_width, bar_width * done / total);
  const std::string drawn = std::string(full, '#') + std::string(bar_width - full, '.');
  std::fprintf(out_, "\r%s [%s] %zu/%zu  %s%s", label.c_str(), drawn.c_str(), done, total, note.c_str(),
               erase_to_end_of_line);
  std::fflush(out_);
  bar_is_drawn_ = true;
}

void progress::line(const std::string& text) {
  if (out_ == nullptr) return;
  if (bar_is_drawn_) std::fprintf(out_, "\r%s", erase_to_end_of_line);
  bar_is_drawn_ = false;
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

std::string text(const char* format, ...) {
  std::va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string result(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(result.data(), result.size() + 1, format, again);
  va_end(again);
  return result;
}

}  // namespace train_digits
