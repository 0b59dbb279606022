// SPDX-License-Identifier: Apache-2.0
// What a person sees while the network trains.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace train_digits {

// Whether a person reads standard output: it is a terminal, or a launcher that passes it on to one says
// TUTTI_TTY=1.
bool output_is_terminal() noexcept;

// Lines, and on a terminal a bar that the next line overwrites.
class progress {
 public:
  // `out` is borrowed; null is for the ranks that stay silent.
  progress(std::FILE* out, bool terminal) noexcept : out_(out), terminal_(terminal) {}

  // Draws "label [####....] done/total  note" at most 20 times a second; nothing where there is no terminal.
  void bar(const std::string& label, std::size_t done, std::size_t total, const std::string& note);

  // Prints one whole line, at once.
  void line(const std::string& text);

 private:
  std::FILE* out_;
  bool terminal_;
  bool bar_is_drawn_ = false;
  std::chrono::steady_clock::time_point next_draw_{};
};

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

}  // namespace train_digits
