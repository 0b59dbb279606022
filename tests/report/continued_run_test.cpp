// SPDX-License-Identifier: Apache-2.0
// A run that is opened again continues: by its id, with its labels, from any process.
#include "report/run_data.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "track/run_directory.hpp"
#include "track/run_reader.hpp"

#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <tutti/track.hpp>
#include <vector>

using namespace tutti;
using namespace tutti::test;
namespace fs = std::filesystem;

namespace {

track::options options_of(const scratch_directory& scratch) {
  track::options o;
  o.directory = (scratch.path() / "runs").string();
  o.console = false;
  o.system_metrics = std::chrono::milliseconds(0);
  o.id = "mnist-7";
  return o;
}

// Logs steps [from, to) of `loss`, each with `value`.
task<> say_steps(communicator world, track::options o, int from, int to, double value) {
  const track::log log = co_await track::open(world, o);
  for (int step = from; step < to; ++step) log.scalar("loss", step, value);
  const track::totals t = co_await log.finish();
  TUTTI_EXPECT(t.complete && t.failed == 0);
}

void start(int ranks, const track::options& o, int from, int to, double value) {
  run_local(ranks, [&](communicator world) { return say_steps(std::move(world), o, from, to, value); });
}

failure refused(const track::options& o) {
  return failures_of(1, {}, [&o](communicator world) -> task<> { co_await track::open(world, o); })[0];
}

std::size_t count_of(const report::rank_data& r, double value) {
  std::size_t n = 0;
  for (const report::point& p : r.series.at("loss")) n += p.value == value;
  return n;
}

}  // namespace

TEST_CASE("tracking continued: four ranks, then two: one run, one curve per label, repeated steps replaced") {
  const scratch_directory scratch;
  const track::options o = options_of(scratch);
  start(4, o, 0, 50, 1);
  start(2, o, 30, 80, 2);
  const fs::path run = only_run(scratch.path() / "runs");
  CHECK(run.filename() == "mnist-7");
  CHECK(read_json(run / "run.json")["ranks"] == 4);
  const report::run_data read = report::read_run(run);
  REQUIRE(read.ranks.size() == 4);
  for (const report::rank_data& r : read.ranks) {
    const bool went_on = r.rank < 2;
    const auto& loss = r.series.at("loss");
    REQUIRE(loss.size() == (went_on ? 80 : 50));
    for (std::size_t i = 0; i < loss.size(); ++i) CHECK(loss[i].step == static_cast<double>(i));
    CHECK(count_of(r, 1) == (went_on ? 30 : 50));
    CHECK(lines_of(run, r.rank, "loss").size() == (went_on ? 100 : 50));
  }
}

TEST_CASE("tracking continued: a process outside of the communicator writes to the run by its id") {
  const scratch_directory scratch;
  const track::options o = options_of(scratch);
  start(2, o, 0, 5, 1);
  run_local(1, [&o](communicator) -> task<> {
    track::options outside = o;
    outside.resume = track::resume::must;
    for (int i = 0; i < 2; ++i) {
      const track::log log = co_await track::open(outside);
      log.scalar("accuracy", i, 0.5);
      const bool room = co_await log.room(patience);
      TUTTI_EXPECT(room);
      const track::totals t = co_await log.finish();
      TUTTI_EXPECT(t.complete && t.written == 1);
    }
    outside.label = "evaluation";
    const track::log log = co_await track::open(outside);
    log.scalar("accuracy", 1, 0.75);
    co_await log.finish();
  });
  const fs::path run = only_run(scratch.path() / "runs");
  const report::run_data read = report::read_run(run);
  REQUIRE(read.ranks.size() == 4);
  CHECK(read.absent() == 0);
  for (const std::size_t i : {0U, 1U}) CHECK(read.ranks[i].series.at("loss").size() == 5);
  for (const std::size_t i : {2U, 3U}) {
    const report::rank_data& r = read.ranks[i];
    CHECK(r.rank == static_cast<int>(i));
    const bool named = r.label == "evaluation";
    CHECK((named || r.label.ends_with("_" + std::to_string(r.pid))));
    CHECK(r.series.at("accuracy").size() == (named ? 1 : 2));
    CHECK(r.state == report::rank_state::finished);
  }
}

TEST_CASE("tracking continued: an existing or missing id is an error, and nothing is written") {
  const scratch_directory scratch;
  track::options o = options_of(scratch);
  o.resume = track::resume::must;
  failure f = refused(o);
  CHECK(f.code == errc::invalid_argument);
  CHECK(f.says("mnist-7"));
  CHECK(f.says(o.directory));
  CHECK_FALSE(fs::exists(o.directory));

  // Ranks of one start must not count each other as an older run.
  o.resume = track::resume::never;
  start(4, o, 0, 5, 1);
  const fs::path run = only_run(scratch.path() / "runs");
  const std::string before = contents(run / "rank-0.jsonl") + contents(run / "rank-0.json");
  f = refused(o);
  CHECK(f.code == errc::invalid_argument);
  CHECK(f.says("mnist-7"));
  CHECK(contents(run / "rank-0.jsonl") + contents(run / "rank-0.json") == before);
  CHECK(only_run(scratch.path() / "runs") == run);
  o.resume = track::resume::must;
  start(1, o, 5, 6, 1);
  CHECK(lines_of(run, 0, "loss").size() == 6);
}

TEST_CASE("tracking continued: invalid ids and labels; no id without a communicator") {
  const scratch_directory scratch;
  for (const std::string& bad :
       {std::string("a/b"), std::string(".."), std::string(".a"), std::string("/"), std::string("a\nb"),
        std::string(101, 'x'), std::string("a/"), std::string("a\0b", 3)}) {
    CAPTURE(bad);
    track::options o = options_of(scratch);
    o.id = bad;
    failure f = refused(o);
    CHECK(f.code == errc::invalid_argument);
    CHECK(f.says("options::id"));
    o.id = "good";
    o.label = bad;
    f = refused(o);
    CHECK(f.code == errc::invalid_argument);
    CHECK(f.says("options::label"));
  }
  CHECK_FALSE(fs::exists(scratch.path() / "runs"));
  const auto without = failures_of(1, {}, [&](communicator) -> task<> {
    track::options o = options_of(scratch);
    o.id.clear();
    co_await track::open(o);
  });
  CHECK(without[0].code == errc::invalid_argument);
  CHECK(without[0].says("options::id"));
}

TEST_CASE("tracking continued: a label has one writer at a time") {
  const scratch_directory scratch;
  const track::options o = options_of(scratch);
  std::string told;
  run_local(1, [&](communicator world) -> task<> {
    const track::log first = co_await track::open(world, o);
    try {
      co_await track::open(world, o);
    } catch (const error& e) {
      TUTTI_EXPECT(e.code() == errc::invalid_argument);
      told = e.what();
    }
    first.scalar("loss", 1, 1);
    const track::totals t = co_await first.finish();
    TUTTI_EXPECT(t.complete && t.written == 1);
  });
  CHECK(told.find("rank_0") != std::string::npos);
  CHECK(told.find("options::label") != std::string::npos);
  start(1, o, 2, 3, 1);
  CHECK(lines_of(only_run(scratch.path() / "runs"), 0, "loss").size() == 2);
}

TEST_CASE("tracking continued: a record truncated by a crash is dropped, those before and after are whole") {
  const scratch_directory scratch;
  const track::options o = options_of(scratch);
  start(1, o, 0, 5, 1);
  const fs::path run = only_run(scratch.path() / "runs");
  // Longer than one read.
  std::ofstream(run / "rank-0.jsonl", std::ios::binary | std::ios::app)
      << R"({"kind":"text","value":")" << std::string(10'000, 'x');
  start(1, o, 5, 10, 1);
  CHECK(read_lines(run, 0).size() == 10);
  CHECK(report::read_run(run).ranks.at(0).unreadable_lines == 0);
}

TEST_CASE("tracking continued: labels that equal names of the run's own files have event files beside them") {
  const scratch_directory scratch;
  track::options o = options_of(scratch);
  o.console = true;  // a directory of this name
  const std::vector<std::string> labels{"console",       "rank-0",     "rank_0",       "run.json",
                                        "rank-0.jsonl",  "images",     "label-rank-0", "label-console",
                                        "events-rank-0", "caf\xc3\xa9"};
  for (const std::string& label : labels) {
    o.label = label;
    start(1, o, 0, 5, 1);
  }
  const fs::path run = only_run(scratch.path() / "runs");
  CHECK(report::read_run(run).ranks.size() == labels.size());
  CHECK(fs::is_regular_file(run / "run.json"));
  std::size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(run)) {
    if (!entry.is_directory() || entry.path().filename() == "console") continue;
    CAPTURE(entry.path().filename().string());
    CHECK(event_files(entry.path()).size() == 1);
    ++folders;
  }
  CHECK(folders == labels.size());
}

TEST_CASE("tracking continued: event files of starts within one second keep their order") {
  const scratch_directory scratch;
  const track::options o = options_of(scratch);
  for (int from = 0; from < 12; ++from) start(1, o, from, from + 1, 1);
  const auto files = event_files(only_run(scratch.path() / "runs") / "rank_0");
  REQUIRE(files.size() == 12);
  for (std::size_t i = 0; i < files.size(); ++i) {
    CHECK(files[i].events.front().content == (i == 0 ? "brain.Event:2" : "brain.Event:1"));
    CHECK(files[i].events.back().step == static_cast<std::int64_t>(i));
  }
}

TEST_CASE("rank 0 only: the report has samples of all three ranks, and curves of rank 0 alone") {
  const scratch_directory scratch;
  track::options o = options_of(scratch);
  o.ranks = track::layout::rank_0_only;
  o.system_metrics = std::chrono::milliseconds(20);
  start(3, o, 0, 5, 1);
  const report::run_data read = report::read_run(only_run(scratch.path() / "runs"));
  REQUIRE(read.ranks.size() == 3);
  CHECK(read.absent() == 0);
  for (const report::rank_data& r : read.ranks) {
    CAPTURE(r.rank);
    CHECK(r.state == report::rank_state::finished);
    for (const char* name : {"system/cpu_percent", "system/memory_mib"}) {
      REQUIRE(r.series.contains(name));
      CHECK(r.series.at(name).back().value >= 0);
    }
    CHECK(r.series.contains("loss") == (r.rank == 0));
  }
}
