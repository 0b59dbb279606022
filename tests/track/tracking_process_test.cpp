// SPDX-License-Identifier: Apache-2.0
// Tracking by processes that die and stop: the run stays readable, and no rank waits for another.
#include "launch/launched.hpp"
#include "report/run_data.hpp"
#include "support/command.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/skip.hpp"
#include "track/run_reader.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace tutti::test;
using tutti::launch::testing::count_of;
using tutti::launch::testing::ending;
using tutti::launch::testing::launched;
namespace fs = std::filesystem;

namespace {

ending drill(const scratch_directory& scratch, const std::string& name, long number = 0) {
  return launched({"-n", "4", "--tag-output", "never", "--on-failure", "continue", TUTTI_TRACK_DRILL_PATH,
                   scratch.path().string(), name, std::to_string(number)})
      .finish();
}

// Checks that all files can be read. Returns the number of a rank's values.
std::size_t check_readable(const fs::path& run, int rank) {
  const auto status = read_json(run / ("rank-" + std::to_string(rank) + ".json"));
  CHECK(status["rank"] == rank);
  const auto lines = lines_of(run, rank, "n");
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (lines[i]["step"] != lines[i - 1]["step"].get<int>() + 1) FAIL("a record is missing in between");
  std::size_t events = 0;
  for (const read_event& e : events_of(run, rank).events) events += e.tag == "n";
  // The rank was killed between its two files, or while it wrote one.
  CHECK(events <= lines.size());
  return lines.size();
}

}  // namespace

TEST_CASE("tracking: a rank killed at any moment leaves a readable run, and the others finish") {
  random_numbers random(seed_of_this_run());
  for (int round = 0; round < 6; ++round) {
    const scratch_directory scratch;
    // At once, soon, or after the first megabytes.
    const long number = round == 0 ? 0 : round == 1 ? 1 : static_cast<long>(random.below(60'000));
    CAPTURE(number);
    const ending end = drill(scratch, "killed", number);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 128 + SIGKILL);
    const fs::path run = scratch.path() / "run";
    CHECK(read_json(run / "run.json")["ranks"] == 4);
    for (const int rank : {0, 2, 3}) {
      CHECK(check_readable(run, rank) == 100);
      // On a busy machine, plus one or two samples of the message counters.
      CHECK(end.output.find("rank " + std::to_string(rank) + " wrote 10") != std::string::npos);
      CHECK(read_json(run / ("rank-" + std::to_string(rank) + ".json"))["state"] == "finished");
    }
    if (number == 0) continue;
    CHECK(check_readable(run, 1) <= static_cast<std::size_t>(number));
    CHECK(read_json(run / "rank-1.json")["state"] == "running");
  }
}

TEST_CASE("tracking: output before a SIGKILL is in the run and still goes to its old destination") {
  const scratch_directory scratch;
  const ending end = drill(scratch, "last_output");
  const fs::path console = scratch.path() / "run" / "console";
  CHECK(end.output.find("last words of rank 1\n") != std::string::npos);
  CHECK(end.error.find("its last complaint\n") != std::string::npos);
  // The process that writes the files has outlived the rank, and perhaps the launcher.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto has = [&](const char* file, const char* words) {
    while (std::chrono::steady_clock::now() < deadline) {
      if (scratch.read(console / file).find(words) != std::string::npos) return true;
      std::this_thread::yield();
    }
    return false;
  };
  CHECK(has("rank-1.out", "last words of rank 1\n"));
  CHECK(has("rank-1.err", "its last complaint\n"));
  CHECK(scratch.read(console / "rank-0.out").empty());
}

TEST_CASE("tracking: a stopped rank does not delay open and finish of the others") {
  for (const char* when : {"stopped_before_open", "stopped_while_open"}) {
    CAPTURE(when);
    const scratch_directory scratch;
    const ending end = drill(scratch, when);
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    for (const int rank : {0, 2, 3}) {
      CHECK(end.output.find("rank " + std::to_string(rank) + ": complete 1 in time 1") != std::string::npos);
      CHECK(check_readable(scratch.path() / "run", rank) == 100);
    }
    // It has continued since.
    CHECK(check_readable(scratch.path() / "run", 1) == 100);
  }
}

namespace {

// Steps that the ranks below `again` logged twice appear once, with the last value.
void check_continued(const tutti::report::run_data& run, int again) {
  REQUIRE(run.ranks.size() >= 4);
  CHECK(run.absent() == 0);
  for (int rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    const auto& loss = run.ranks[static_cast<std::size_t>(rank)].series.at("loss");
    REQUIRE(loss.size() == (rank < again ? 80 : 50));
    for (std::size_t i = 0; i < loss.size(); ++i) {
      CHECK(loss[i].step == static_cast<double>(i));
      CHECK(loss[i].value == (rank < again && i >= 30 ? 2 : 1));
    }
  }
}

}  // namespace

namespace {

// Four ranks that are all killed at step 50, then two that continue at step 30, and a process outside of the
// job.
void start_three_times(const std::string& directory) {
  {
    launched job({"-n", "4", "--tag-output", "never", TUTTI_TRACK_DRILL_PATH, directory, "first"});
    job.wait_for("all is written", 4);
    job.signal(SIGKILL);
    job.finish();
  }
  const ending again =
      launched({"-n", "2", "--tag-output", "never", TUTTI_TRACK_DRILL_PATH, directory, "again"}).finish();
  CAPTURE(again.error);
  CHECK(again.exit_code == 0);
  const ending outside = launched({directory, "outside"}, {}, -1, TUTTI_TRACK_DRILL_PATH).finish();
  CAPTURE(outside.error);
  CHECK(outside.exit_code == 0);
}

// First and last step of "loss" in each event file, in TensorBoard's order.
std::string steps_of_files(const fs::path& folder) {
  std::string steps;
  for (const read_file& file : event_files(folder)) {
    std::vector<std::int64_t> of_loss;
    for (const read_event& e : file.events)
      if (e.kind == "scalar" && e.tag == "loss") of_loss.push_back(e.step);
    REQUIRE_FALSE(of_loss.empty());
    steps += std::to_string(of_loss.front()) + "-" + std::to_string(of_loss.back()) + " ";
  }
  return steps;
}

}  // namespace

TEST_CASE("tracking: four ranks are killed, two continue, a process joins: one run, one curve per label") {
  const scratch_directory scratch;
  start_three_times(scratch.path().string());
  const fs::path run = only_run(scratch.path());
  const tutti::report::run_data read = tutti::report::read_run(run);
  check_continued(read, 2);
  REQUIRE(read.ranks.size() == 5);
  CHECK(read.ranks[4].label == "evaluation");
  CHECK(read.ranks[4].series.at("loss").size() == 50);
  for (const std::string label : {"rank_0", "rank_1", "rank_2", "rank_3", "evaluation"}) {
    CAPTURE(label);
    const bool went_on = label == "rank_0" || label == "rank_1";
    CHECK(steps_of_files(run / label) == (went_on                 ? "0-49 30-79 "
                                          : label == "evaluation" ? "30-79 "
                                                                  : "0-49 "));
  }
}

TEST_CASE("tracking: all starts of one job share one run without an id") {
  const scratch_directory scratch;
  const ending end = launched({"-n", "4", "--tag-output", "never", "--on-failure", "restart-all",
                               TUTTI_TRACK_DRILL_PATH, scratch.path().string(), "restarted"})
                         .finish();
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  check_continued(tutti::report::read_run(only_run(scratch.path())), 4);
}

TEST_CASE("tracking: after a rejoin, a new log in the same process continues the run and the label") {
  // Without an id: the job's id.
  for (const std::string name : {"rejoined", "rejoined_by_id", "rejoined_busy"}) {
    CAPTURE(name);
    const scratch_directory scratch;
    const ending end = launched({"-n", "3", "--tag-output", "never", "--on-failure", "restart",
                                 TUTTI_TRACK_DRILL_PATH, scratch.path().string(), name},
                                {"TUTTI_TIMEOUT=30"})
                           .finish();
    CAPTURE(end.output);
    CAPTURE(end.error);
    CHECK(end.exit_code == 0);
    CHECK(count_of(end.output, " goes on at ") == 2);
    CHECK(count_of(end.output, "label is taken\n") == (name == "rejoined_busy" ? 2 : 0));
    const fs::path run = only_run(scratch.path());
    CHECK((run.filename() == "meeting") == (name != "rejoined"));
    const tutti::report::run_data read = tutti::report::read_run(run);
    REQUIRE(read.ranks.size() == 3);
    for (const tutti::report::rank_data& r : read.ranks) {
      CAPTURE(r.rank);
      CHECK(r.label.empty());
      CHECK(r.state == tutti::report::rank_state::finished);
      // One file for each time that the rank has opened a log.
      CHECK(event_files(run / ("rank_" + std::to_string(r.rank))).size() == 2);
      const auto& loss = r.series.at("loss");
      // The last records of the killed rank may be lost.
      CHECK(loss.size() <= 40);
      CHECK(loss.size() >= (r.rank == 1 ? 19 : 40));
      CHECK(loss.back().step == 39);
      for (const tutti::report::point& p : loss) CHECK(p.value == 3);
    }
  }
}

TEST_CASE("tracking: rank 0 only: the GPU of every rank is sampled") {
  const scratch_directory scratch;
  // The loader finds it instead of a driver's.
  const fs::path library = scratch.path() / "libnvidia-ml.so.1";
  fs::copy_file(TUTTI_FAKE_NVML_PATH, library);
  const std::string directory = (scratch.path() / "runs").string();
  const ending end =
      launched({"-n", "3", "--tag-output", "never", TUTTI_TRACK_DRILL_PATH, directory, "rank_0_only"},
               {"LD_LIBRARY_PATH=" + scratch.path().string(), "CUDA_VISIBLE_DEVICES=0,1,2"})
          .finish();
  CAPTURE(end.error);
  CHECK(end.exit_code == 0);
  const tutti::report::run_data read = tutti::report::read_run(only_run(directory));
  REQUIRE(read.ranks.size() == 3);
  for (const tutti::report::rank_data& r : read.ranks) {
    CAPTURE(r.rank);
    // The emulated device i is 10 * i percent busy and has i + 1 GiB in use.
    REQUIRE(r.series.contains("system/gpu_percent"));
    CHECK(r.series.at("system/gpu_percent").back().value == 10 * r.rank);
    CHECK(r.series.at("system/gpu_memory_mib").back().value == 1024 * (r.rank + 1));
    CHECK(r.series.contains("n") == (r.rank == 0));
  }
}

namespace {

// Empty if there is no Python with TensorBoard.
std::string python_with_tensorboard() {
  const char* const named = std::getenv("TUTTI_TENSORBOARD_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  return run_shell(python + " -c 'import tensorboard'").exit_code == 0 ? python : "";
}
const char* const no_tensorboard =
    "no TensorBoard: pip install tensorboard, or TUTTI_TENSORBOARD_PYTHON=a python3 that has it";

}  // namespace

TEST_CASE("tracking: TensorBoard's own readers see a continued run as one curve per label, each step once") {
  const std::string python = python_with_tensorboard();
  if (python.empty()) TUTTI_SKIP(no_tensorboard);
  const scratch_directory scratch;
  start_three_times((scratch.path() / "runs").string());
  const fs::path script = scratch.write("read.py", R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.backend.event_processing import plugin_event_multiplexer as plugins
from tensorboard.util import tensor_util

def say(reader, run, tag, points):
    steps = [step for step, value in points]
    once = steps == list(range(len(steps)))
    later = sum(value == 2 for step, value in points)
    print(reader, run, tag, len(steps), 'once' if once else steps, later, 'later')

logs = sys.argv[1]
old = EventMultiplexer(size_guidance={'scalars': 0}).AddRunsFromDirectory(logs)
old.Reload()
for run, tags in sorted(old.Runs().items()):
    for tag in sorted(tags['scalars']):
        say('multiplexer', run, tag, [(e.step, e.value) for e in old.Scalars(run, tag)])
new = plugins.EventMultiplexer(tensor_size_guidance={'scalars': 0}).AddRunsFromDirectory(logs)
new.Reload()
for run, tags in sorted(new.Runs().items()):
    for tag in sorted(tags['tensors']):
        say('plugins', run, tag,
            [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in new.Tensors(run, tag)])
one = EventAccumulator(logs + '/continued/rank_0', size_guidance={'scalars': 0})
one.Reload()
say('accumulator', 'rank_0', 'loss', [(e.step, e.value) for e in one.Scalars('loss')])
)");
  const command_result read = run_shell(python + " " + quoted(script.string()) + " " +
                                        quoted((scratch.path() / "runs").string()) + " 2>/dev/null");
  CAPTURE(read.output);
  CHECK(read.exit_code == 0);
  for (const std::string reader : {"multiplexer", "plugins"}) {
    // No process has logged the evaluation's steps 0 to 29.
    for (const char* tag : {"accuracy", "loss"})
      CHECK(read.times(reader + " continued/evaluation " + tag + " ") == 1);
    for (const int rank : {0, 1, 2, 3}) {
      const std::string run = reader + " continued/rank_" + std::to_string(rank) + " ";
      CHECK(read.times(run + (rank < 2 ? "accuracy 8 once 5 later\n" : "accuracy 5 once 0 later\n")) == 1);
      CHECK(read.times(run + (rank < 2 ? "loss 80 once 50 later\n" : "loss 50 once 0 later\n")) == 1);
    }
    CHECK(read.times(reader + " ") == 10);
  }
  CHECK(read.times("accumulator rank_0 loss 80 once 50 later\n") == 1);
}

TEST_CASE("tracking: TensorBoard's own reader sees all records") {
  const std::string python = python_with_tensorboard();
  if (python.empty()) TUTTI_SKIP(no_tensorboard);
  const scratch_directory scratch;
  CHECK(launched({"-n", "3", TUTTI_TRACK_RUN_PATH, scratch.path().string()}).finish().exit_code == 0);
  const fs::path script = scratch.write("read.py", R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
def read(rank):
    events = EventAccumulator(f'{sys.argv[1]}/rank_{rank}', size_guidance={'scalars': 0, 'tensors': 0})
    events.Reload()
    return events
for rank in range(3):
    events = read(rank)
    losses = events.Scalars('loss')
    print('losses', [e.step for e in losses] == list(range(100)))
    print('image', events.Images('weights')[0].width)
    print('values', events.Histograms('gradient')[0].histogram_value.num)
    print('words', events.Tensors('remark')[0].tensor_proto.string_val[0].decode())
from tensorboard.plugins.hparams import metadata
content = read(0).PluginTagToContent('hparams')['_hparams_/session_start_info']
print('rate', metadata.parse_session_start_info_plugin_data(content).hparams['rate'].number_value)
)");
  fs::path run;
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    if (fs::exists(entry.path() / "run.json")) run = entry.path();
  const command_result read = run_shell(python + " " + quoted(script.string()) + " " + quoted(run.string()));
  CAPTURE(read.output);
  CHECK(read.exit_code == 0);
  CHECK(read.times("losses True") == 3);
  CHECK(read.times("image 32") == 3);
  CHECK(read.times("values 1000.0") == 3);
  CHECK(read.times("words Rank ") == 3);
  CHECK(read.times("rate 0.1") == 1);
}
