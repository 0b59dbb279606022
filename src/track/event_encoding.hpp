// SPDX-License-Identifier: Apache-2.0
// Distributions in a few numbers, pixels as PNG files, and the records of TensorBoard's event files: a length, its
// checksum, an Event message, its checksum.
#pragma once

#include "track/record_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::track {

struct histogram {
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  std::uint64_t count = 0;
  std::uint64_t not_finite = 0;  // not counted in the others
  std::vector<double> limits;    // of each bucket, its upper end, which belongs to it
  std::vector<double> counts;
};

// Makes `buckets` of equal width between the least and the greatest value: one bucket if all values are
// equal, none without values.
histogram histogram_of(std::span<const double> values, int buckets = 64);

// Whether these make an image: width x height pixels of 1 (grey), 3 (RGB) or 4 (RGBA) samples.
bool is_image(int width, int height, int channels, std::size_t samples);

// 8 bits per sample. Stored, not compressed: every reader accepts that, and it needs no zlib. Empty if these
// make no image.
std::string png_of(int width, int height, int channels, std::span<const std::uint8_t> samples);

// Each of these appends one event to `to`, with the name, step and time of `at`. put_version() is the first of a
// file. `goes_on`: the file follows others of its run.
void put_version(std::string& to, double wall_time, bool goes_on = false);
// Comes before the first event of a tag in a file that follows others of its run. TensorBoard then drops what
// these have of the tag at this step and later; it keeps all other tags.
void put_restart(std::string& to, const record& first);
void put_scalar(std::string& to, const record& at, double number);
void put_text(std::string& to, const record& at, std::string_view words);
void put_histogram(std::string& to, const record& at, const histogram& h);
void put_image(std::string& to, const record& at, int width, int height, int channels, std::string_view png);
// For TensorBoard's HPARAMS page.
void put_hyperparameters(std::string& to, double wall_time, const track::hyperparameter_map& values);

}  // namespace tutti::track
