// SPDX-License-Identifier: Apache-2.0
// Runs written by hand for tests of the report, if tracking itself would not write them so.
#pragma once

#include "support/scratch_directory.hpp"
#include "track/run_facts.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace tutti::test {

class written_run {
 public:
  const std::filesystem::path& path() const { return scratch_.path(); }

  void file(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << content;
  }
  void facts(int ranks, const std::string& name = "a run") const {
    file("run.json",
         nlohmann::json(
             {{"format", 1}, {"name", name}, {"ranks", ranks}, {"created", 1.7e9}, {"layout", "single_run"}})
             .dump());
  }
  // By default the status of this process, which runs.
  static nlohmann::json status(int rank, const std::string& state) {
    const track::process_identity me = track::this_process();
    return {{"rank", rank},
            {"host", me.host},
            {"boot", me.boot},
            {"pid", me.pid},
            {"process_started_ticks", me.started_ticks},
            {"state", state},
            {"opened", 1.7e9},
            {"heartbeat", track::seconds_since_1970()},
            {"heartbeat_seconds", 2.0},
            {"written", 3},
            {"dropped", 0},
            {"failed", 0}};
  }
  void rank(int number, const std::string& state, const std::string& lines) const {
    file("rank-" + std::to_string(number) + ".json", status(number, state).dump());
    file("rank-" + std::to_string(number) + ".jsonl", lines);
  }
  static std::string scalar(const std::string& name, int step, const nlohmann::json& value) {
    return nlohmann::json(
               {{"kind", "scalar"}, {"name", name}, {"step", step}, {"time", 1.7e9}, {"value", value}})
               .dump() +
           "\n";
  }

 private:
  scratch_directory scratch_;
};

}  // namespace tutti::test
