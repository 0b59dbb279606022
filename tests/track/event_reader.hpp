// SPDX-License-Identifier: Apache-2.0
// A reader of TensorBoard's event files that lets nothing pass: every checksum, every field's number and
// type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

struct read_histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits, counts;
};

struct read_event {
  std::string kind;  // version, restart (of no values), scalar, text, histogram, image, hyperparameters
  double wall_time = 0;
  std::int64_t step = 0;
  std::string tag;
  float number = 0;
  std::string
      content;  // of a text, or the version, or an image's file, or what the plugin of hyperparameters is
                // given
  read_histogram histogram;
  std::int64_t width = 0, height = 0, channels = 0;
};

struct read_file {
  std::vector<read_event> events;
  bool cut = false;  // the last record is not whole: the writer was killed
};

// Throws std::runtime_error, with the byte at fault, for anything else than whole good records, the last
// perhaps cut.
read_file read_events(std::string_view bytes);

}  // namespace tutti::test
