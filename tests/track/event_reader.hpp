// SPDX-License-Identifier: Apache-2.0
// A strict reader of TensorBoard's event files: it checks every checksum, and every field's number and type.
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
  std::string kind;  // version, restart (no values), scalar, text, histogram, image, hyperparameters
  double wall_time = 0;
  std::int64_t step = 0;
  std::string tag;
  float number = 0;
  std::string content;  // the text, version or image file, or the data for the hyperparameter plugin
  read_histogram histogram;
  std::int64_t width = 0, height = 0, channels = 0;
};

struct read_file {
  std::vector<read_event> events;
  bool cut = false;  // the last record is truncated: the writer was killed
};

// Throws std::runtime_error with the offset unless all records are whole and valid. The last may be
// truncated.
read_file read_events(std::string_view bytes);

}  // namespace tutti::test
