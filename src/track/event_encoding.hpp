// SPDX-License-Identifier: Apache-2.0
// Records of TensorBoard's event files: a length, its checksum, an Event message, its checksum.
#pragma once

#include "track/histogram.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/track.hpp>

namespace tutti::track {

// The tag, step and time of an event.
struct event_place {
  std::string_view tag;
  std::int64_t step = 0;
  double wall_time = 0;  // seconds since 1970
};

// Each of these appends one record to `to`. put_version() is the first of a file. `goes_on`: the file follows
// others of its run; put_restart() then comes before the first event of each tag.
void put_version(std::string& to, double wall_time, bool goes_on = false);
// Comes before the first event of a tag in a file that follows others of its run. TensorBoard then drops what
// these have of the tag at this step and later; it keeps all other tags.
void put_restart(std::string& to, const event_place& first);
void put_scalar(std::string& to, const event_place& at, double number);
void put_text(std::string& to, const event_place& at, std::string_view words);
void put_histogram(std::string& to, const event_place& at, const histogram& h);
void put_image(std::string& to, const event_place& at, int width, int height, int channels,
               std::string_view png);
// For TensorBoard's HPARAMS page.
void put_hyperparameters(std::string& to, double wall_time, const track::hyperparameter_map& values);

// "events.out.tfevents.…": TensorBoard finds the files by this name.
std::string event_file_name(double wall_time, std::string_view host, std::int64_t pid,
                            std::string_view writer);

}  // namespace tutti::track
