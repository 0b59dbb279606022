// SPDX-License-Identifier: Apache-2.0
// record: one measurement, text or file of a rank, on its way to the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <tutti/track.hpp>
#include <variant>
#include <vector>

namespace tutti::track {

struct text_record {
  std::string content;
};
struct histogram_record {
  std::vector<double> values;
};
struct image_record {
  int width = 0, height = 0, channels = 0;
  std::string samples;
};
struct hyperparameter_record {
  track::hyperparameter_map values;
};
struct artifact_record {
  std::string bytes;
};
struct artifact_file_record {
  std::filesystem::path file;
};

struct record {
  std::string name;
  std::int64_t step = 0;
  double wall_time = 0;  // seconds since 1970
  std::variant<double, text_record, histogram_record, image_record, hyperparameter_record, artifact_record,
               artifact_file_record>
      said;
};

// Its share of the queue's memory.
inline std::size_t bytes_of(const record& r) noexcept {
  struct size_of {
    std::size_t operator()(double) const noexcept { return 0; }
    std::size_t operator()(const text_record& t) const noexcept { return t.content.size(); }
    std::size_t operator()(const histogram_record& h) const noexcept {
      return h.values.size() * sizeof(double);
    }
    std::size_t operator()(const image_record& i) const noexcept { return i.samples.size(); }
    std::size_t operator()(const hyperparameter_record& h) const noexcept {
      std::size_t n = 0;
      for (const auto& [name, v] : h.values) {
        const auto* const words = std::get_if<std::string>(&v.held());
        n += sizeof(std::pair<std::string, track::value>) + 4 * sizeof(void*) + name.size() +
             (words != nullptr ? words->size() : 0);
      }
      return n;
    }
    std::size_t operator()(const artifact_record& a) const noexcept { return a.bytes.size(); }
    std::size_t operator()(const artifact_file_record& a) const noexcept { return a.file.native().size(); }
  };
  return sizeof(record) + (r.name.size() > 15 ? r.name.size() : 0) + std::visit(size_of(), r.said);
}

}  // namespace tutti::track
