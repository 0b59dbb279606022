// SPDX-License-Identifier: Apache-2.0
// Progress output of the training.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace train_digits {

// Whether standard output is a terminal, directly or through a launcher that sets TUTTI_TTY=1.
bool output_is_terminal() noexcept;

// Prints lines, and on a terminal a bar that the next line overwrites.
class progress {
 public:
  // Borrows `out`; nullptr for ranks without output.
  progress(std::FILE* out, bool terminal) noexcept : out_(out), terminal_(terminal) {}

  // Draws "label [####....] done/total  note" at most 20 times a second; only on a terminal.
  void bar(const std::string& label, std::size_t done, std::size_t total, const std::string& note);

  // Prints one whole line at once.
  void line(const std::string& text);

 private:
  std::FILE* out_;
  bool terminal_;
  bool bar_is_drawn_ = false;
  std::chrono::steady_clock::time_point next_draw_{};
};

// printf that returns a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

}  // namespace train_digits
