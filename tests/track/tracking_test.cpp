// SPDX-License-Identifier: Apache-2.0
// Tracking by ranks that are threads: the files that they leave.
#include <tutti/track.hpp>

#include "base/unique_fd.hpp"
#include "support/child.hpp"
#include "support/local_world.hpp"
#include "support/scratch_directory.hpp"
#include "support/second_loop.hpp"
#include "support/skip.hpp"
#include "track/run_reader.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

using namespace tutti;
using namespace tutti::test;
namespace fs = std::filesystem;

namespace {

track::options options_in(const scratch_directory& scratch) {
  track::options o;
  o.directory = (scratch.path() / "runs").string();
  o.console = false;
  return o;
}

task<> say_everything(communicator world, track::options o) {
  const track::log log = co_await track::open(world, o);
  track::hyperparameter_map parameters;
  parameters.insert_or_assign("rate", 0.1F);
  parameters.insert_or_assign("rank", world.rank());
  parameters.insert_or_assign("worst", -std::numeric_limits<double>::infinity());
  log.hyperparameters(parameters);
  for (int step = 0; step < 10; ++step) log.scalar("loss", step, 1.0 / (step + 1) + world.rank());
  log.scalar("loss", 10, NAN);
  log.text("remark", 3, "line 1\nline \"2\", caf\xc3\xa9 and no UTF-8: \xff");
  const std::vector<float> values{1, 2, 3};
  log.histogram("weights", 4, values);
  const std::vector<std::uint8_t> pixels{1, 2, 3, 4, 5, 6};
  track::image_view picture;
  picture.width = 1;
  picture.height = 2;
  picture.channels = 3;
  picture.samples = pixels;
  log.image("a picture", 5, picture);
  log.artifact("deep/model.bin", std::as_bytes(std::span(values)));
  log.artifact("deep/model.bin", std::as_bytes(std::span(values).first(1)));
  track::step_times times;
  times.compute_seconds = 0.5;
  times.communication_seconds = 0.1;
  times.hidden_seconds = 0.3;
  times.bytes = 1000;
  log.times(6, times);
  const track::totals t = co_await log.finish();
  TUTTI_EXPECT(t.complete && t.dropped == 0 && t.failed == 0);
  TUTTI_EXPECT(t.written == 25);
}

}  // namespace

TEST_CASE("hyperparameters keep their values") {
  using held = std::variant<bool, std::int64_t, double, std::string>;
  CHECK((track::value('x').held() == held(std::string("x"))));
  CHECK((track::value(std::uint64_t{1} << 63).held() == held(std::string("9223372036854775808"))));
  CHECK(
      (track::value((std::uint64_t{1} << 63) - 1).held() == held(std::numeric_limits<std::int64_t>::max())));
  CHECK((track::value(std::numeric_limits<std::int64_t>::min()).held() ==
         held(std::numeric_limits<std::int64_t>::min())));
  CHECK((track::value(static_cast<unsigned char>(7)).held() == held(std::int64_t{7})));
}

TEST_CASE("tracking: all ranks in a single run, with series named by rank") {
  const scratch_directory scratch;
  run_local(3, [o = options_in(scratch)](communicator world) { return say_everything(std::move(world), o); });
  const fs::path run = only_run(scratch.path() / "runs");
  const auto facts = read_json(run / "run.json");
  CHECK(facts["ranks"] == 3);
  CHECK(facts["layout"] == "single_run");
  CHECK(facts["places"].size() == 3);
  CHECK(facts["command"].size() >= 1);
  CHECK(facts["versions"].contains("tutti"));
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    const std::string number = std::to_string(rank);
    CHECK(read_json(run / ("rank-" + number + ".json"))["state"] == "finished");
    const auto losses = lines_of(run, rank, "loss");
    REQUIRE(losses.size() == 11);
    CHECK(losses[9]["value"] == 0.1 + rank);
    CHECK(losses[10]["value"] == "NaN");
    CHECK(read_lines(run, rank).front()["values"] ==
          nlohmann::json({{"rank", rank}, {"rate", 0.1}, {"worst", "-Infinity"}}));
    CHECK(lines_of(run, rank, "step/overlap").at(0)["value"].get<double>() == doctest::Approx(0.75));
    CHECK(lines_of(run, rank, "step/bytes").at(0)["value"] == 1000);
    CHECK(lines_of(run, rank, "step/memory_mib").at(0)["value"] > 1);
    CHECK(lines_of(run, rank, "step/cpu_percent").at(0)["value"] >= 0);
    CHECK(lines_of(run, rank, "remark").at(0)["value"] ==
          "line 1\nline \"2\", caf\xc3\xa9 and no UTF-8: \xef\xbf\xbd");
    CHECK(fs::file_size(run / "artifacts" / ("rank-" + number) / "deep" / "model.bin") == 12);
    CHECK(fs::file_size(run / "artifacts" / ("rank-" + number) / "deep" / "model-2.bin") == 4);
    CHECK(fs::exists(run / lines_of(run, rank, "a picture").at(0)["file"].get<std::string>()));

    const read_file events = events_of(run, rank);
    CHECK_FALSE(events.cut);
    int scalars = 0, others = 0;
    for (const read_event& e : events.events) {
      if (e.kind == "version" || e.kind == "hyperparameters") continue;
      scalars += e.tag == "loss";
      others += e.kind != "scalar";
    }
    CHECK(scalars == 11);
    CHECK(others == 3);
  }
}

TEST_CASE("tracking: a run for each rank in one group, or rank 0's only") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  o.name = "group";
  o.ranks = track::layout::run_per_rank;
  run_local(2, [&o](communicator world) { return say_everything(std::move(world), o); });
  for (int rank = 0; rank < 2; ++rank) {
    const fs::path run = scratch.path() / "runs" / "group" / ("rank-" + std::to_string(rank));
    CHECK(fs::exists(run / "run.json"));
    CHECK(lines_of(run, rank, "loss").size() == 11);
    bool plain = false;
    for (const read_event& e : events_of(run, rank).events) plain = plain || e.tag == "loss";
    CHECK(plain);
  }

  o.name = "first";
  o.ranks = track::layout::rank_0_only;
  run_local(2, [&o](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    TUTTI_EXPECT(static_cast<bool>(log) == (world.rank() == 0));
    log.scalar("loss", 1, 1);
    const track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.complete && t.written == (world.rank() == 0 ? 1U : 0U));
  });
  const fs::path run = scratch.path() / "runs" / "first";
  CHECK(lines_of(run, 0, "loss").size() == 1);
  CHECK(lines_of(run, 1, "loss").empty());
  CHECK_FALSE(lines_of(run, 1, "system/memory_mib").empty());

  o.name = "no samples";
  o.system_metrics = std::chrono::milliseconds(0);
  run_local(2, [&o](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    log.scalar("loss", 1, 1);
    co_await log.finish();
  });
  CHECK(lines_of(scratch.path() / "runs" / o.name, 0, "loss").size() == 1);
  CHECK_FALSE(fs::exists(scratch.path() / "runs" / o.name / "rank-1.jsonl"));
}

namespace {

// Every kind of record. Ranks other than 0 keep only the samples.
task<> say_to_rank_0_only(communicator world, track::options o) {
  const track::log log = co_await track::open(world, o);
  TUTTI_EXPECT(static_cast<bool>(log) == (world.rank() == 0));
  TUTTI_EXPECT(log.directory().empty() == (world.rank() != 0));
  log.text("remark", 0, "hello");
  log.image("no picture", 1, {});
  track::step_times times;
  times.compute_seconds = 0.5;
  log.times(6, times);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    log.scalar("loss", i, i);
  }
  const track::totals t = co_await log.finish();
  TUTTI_EXPECT(t.complete && t.failed == 0 && t.dropped == (world.rank() == 0 ? 1U : 0U));
}

}  // namespace

TEST_CASE("tracking: rank 0 only: the other ranks keep their samples, and none of their records") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  o.ranks = track::layout::rank_0_only;
  o.system_metrics = std::chrono::milliseconds(20);
  run_local(3, [&o](communicator world) { return say_to_rank_0_only(std::move(world), o); });
  const fs::path run = only_run(scratch.path() / "runs");
  for (const int rank : {0, 1, 2}) {
    CAPTURE(rank);
    for (const char* name : {"system/cpu_percent", "system/memory_mib", "communication/sends"})
      CHECK_FALSE(lines_of(run, rank, name).empty());
    CHECK(lines_of(run, rank, "loss").size() == (rank == 0 ? 20 : 0));
    if (rank == 0) continue;
    for (const auto& line : read_lines(run, rank)) {
      const std::string name = line.value("name", "");
      CHECK((name.starts_with("system/") || name.starts_with("communication/")));
    }
  }
}

TEST_CASE("tracking: ranks need not take part, and a second run has its own directory") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  o.name = "again";
  run_local(3, [&o](communicator world) -> task<> {
    if (world.rank() == 0) co_return;  // the rank that others would wait for
    for (int i = 0; i < 2; ++i) {
      const track::log log = co_await track::open(world, o);
      log.scalar("n", i, i);
      co_await log.finish();
    }
  });
  for (const char* name : {"again", "again-2"})
    for (const int rank : {1, 2}) CHECK(lines_of(scratch.path() / "runs" / name, rank, "n").size() == 1);
}

TEST_CASE("tracking: names that no file can have tell runs apart all the same") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  const std::string longest(120, 'x');
  const std::vector<std::string> names = {
      "sweep lr=1e-3", "sweep+lr=1e-3", "\xe4\xb8\x80\xe5\x8f\xb7", "\xe4\xba\x8c\xe5\x8f\xb7",
      longest + "1",   longest + "2"};
  run_local(1, [&](communicator world) -> task<> {
    for (const std::string& name : names) {
      o.name = name;
      const track::log log = co_await track::open(world, o);
      log.scalar("n", 0, 0);
      co_await log.finish();
    }
  });
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(lines_of(scratch.path() / "runs" / name, 0, "n").size() == 1);
  }
}

TEST_CASE("tracking: many scalars of each of four ranks at once: none is lost, or the loss is counted") {
  const scratch_directory scratch;
  int each = is_second_loop() ? 10'000 : 100'000;  // the threads that write know no loop
#ifdef __SANITIZE_THREAD__
  each = 10'000;
#endif
  for (const std::size_t memory : {std::size_t{64} << 20, std::size_t{64} << 10}) {
    CAPTURE(memory);
    track::options o = options_in(scratch);
    o.name = "of " + std::to_string(memory);
    o.buffer_bytes = memory;
    o.finish_timeout = patience;
    o.system_metrics = std::chrono::milliseconds(0);
    std::array<track::totals, 4> totals;
    run_local(4, [&o, &totals, &each](communicator world) -> task<> {
      const track::log log = co_await track::open(world, o);
      for (int i = 0; i < each; ++i) log.scalar("n", i, i);
      totals[static_cast<std::size_t>(world.rank())] = co_await log.finish();
    });
    for (int rank = 0; rank < 4; ++rank) {
      const track::totals& t = totals[static_cast<std::size_t>(rank)];
      CHECK(t.complete);
      CHECK(t.written + t.dropped == each);
      if (memory > (1U << 20)) CHECK(t.dropped == 0);
      // The newest are in the file, in order, once.
      const fs::path run = scratch.path() / "runs" / o.name;
      const auto lines = lines_of(run, rank, "n");
      REQUIRE(lines.size() == t.written);
      std::int64_t last = -1;
      bool ascending = true;
      for (const auto& line : lines) {
        ascending = ascending && line["step"] > last;
        last = line["step"];
      }
      CHECK(ascending);
      CHECK(last == each - 1);
      CHECK(events_of(run, rank).events.size() == t.written + 1);
      CHECK(read_json(run / ("rank-" + std::to_string(rank) + ".json"))["dropped"] == t.dropped);
    }
  }
}

TEST_CASE("tracking: a rank that awaits space loses nothing, however little memory there is") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  o.buffer_bytes = 16 << 10;
  o.system_metrics = std::chrono::milliseconds(0);
  run_local(1, [&o](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    for (int i = 0; i < 2000; ++i) {
      log.scalar("n", i, i);
      if (i % 20 == 19) {
        const bool room = co_await log.room(patience);
        TUTTI_EXPECT(room);
      }
    }
    const track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.written == 2000 && t.dropped == 0);
  });
}

TEST_CASE("tracking: from any thread; invalid records are counted, not thrown") {
  const scratch_directory scratch;
  const track::options o = options_in(scratch);
  run_local(1, [&o](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 100; ++i) log.scalar("thread " + std::to_string(t), i, i);
      });
    for (std::thread& t : threads) t.join();
    log.image("no picture", 1, {});
    for (const char* bad : {"", "/etc/passwd", "../up", "a/../../b", "a/"})
      log.artifact(bad, std::span<const std::byte>());
    log.artifact("gone", std::filesystem::path("/nowhere/at/all"));
    track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.written == 400 && t.dropped == 6 && t.failed == 1 && t.complete);
    TUTTI_EXPECT(t.failure.find("/nowhere/at/all") != std::string::npos);
    log.scalar("late", 1, 1);
    t = co_await log.finish();
    TUTTI_EXPECT(t.written == 400 && t.dropped == 6);
  });
}

TEST_CASE("tracking: a file becomes an artifact; a log without finish is recorded as closed") {
  const scratch_directory scratch;
  const track::options o = options_in(scratch);
  const fs::path file = scratch.write("model", "weights");
  run_local(1, [&](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    log.artifact("copy", file);
    log.scalar("n", 1, 1);
  });
  const fs::path run = only_run(scratch.path() / "runs");
  CHECK(scratch.read(run / "artifacts" / "rank-0" / "copy") == "weights");
  CHECK(lines_of(run, 0, "n").size() == 1);
  CHECK(read_json(run / "rank-0.json")["state"] == "closed");
}

TEST_CASE("tracking: an artifact has all that its file gives, whatever size that is said to have") {
  const scratch_directory scratch;
  const track::options o = options_in(scratch);
  run_local(1, [&](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    log.artifact("environ", fs::path("/proc/self/environ"));
    log.artifact("online", fs::path("/sys/devices/system/cpu/online"));
    log.artifact("folder", fs::path("/proc/self"));
    log.artifact("mem", fs::path("/proc/self/mem"));  // opens, and cannot be read
    const track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.written == 2);
    TUTTI_EXPECT(t.failed == 2);
    TUTTI_EXPECT(t.failure.find("/proc/self/mem") != std::string::npos);
  });
  const fs::path run = only_run(scratch.path() / "runs"), folder = run / "artifacts" / "rank-0";
  for (const auto& [name, from] :
       {std::pair("environ", "/proc/self/environ"), std::pair("online", "/sys/devices/system/cpu/online")}) {
    CAPTURE(name);
    CHECK(contents(folder / name) == contents(from));
    CHECK(lines_of(run, 0, name).at(0)["bytes"] == contents(from).size());
  }
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 2);
}

TEST_CASE("tracking: records of a run that was deleted count as failed") {
  const scratch_directory scratch;
  const track::options o = options_in(scratch);
  run_local(1, [&](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    const fs::path run = log.directory();
    std::error_code not_empty;  // the status of the rank may be renewed meanwhile
    while (fs::exists(run)) fs::remove_all(run, not_empty);
    for (int i = 0; i < 10; ++i) log.scalar("n", i, i);
    const track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.written == 0);
    TUTTI_EXPECT(t.failed == 10);
    TUTTI_EXPECT(t.failure.find("deleted") != std::string::npos);
  });
}

TEST_CASE("tracking: an unusable directory is an error of open, with its path") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  o.directory = scratch.write("file", "").string();
  const auto failures =
      failures_of(1, {}, [&o](communicator world) -> task<> { co_await track::open(world, o); });
  CHECK(failures[0].code == errc::system);
  CHECK(failures[0].says(o.directory));
  o.name = "a/b";
  CHECK(failures_of(1, {}, [&o](communicator world) -> task<> { co_await track::open(world, o); })[0].code ==
        errc::invalid_argument);
}

TEST_CASE("tracking: an open that is cancelled leaves its label to the next") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  run_local(1, [&](communicator world) -> task<> {
    o.id = "a_run";
    bool is_cancelled = false;
    for (int attempt = 0; attempt < 100 && !is_cancelled; ++attempt) {  // the writer may be faster
      try {
        co_await with_timeout(track::open(world, o), std::chrono::milliseconds(0));
      } catch (const error& e) {
        is_cancelled = e.code() == errc::timed_out;
      }
    }
    TUTTI_EXPECT(is_cancelled);
    track::log log;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!log && std::chrono::steady_clock::now() < end) {
      try {
        log = co_await track::open(world, o);
      } catch (const error&) {  // the first writer has not ended
      }
      co_await sleep_for(std::chrono::milliseconds(1));
    }
    TUTTI_EXPECT(bool(log));
    const track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.complete);
  });
}

TEST_CASE("tracking: without a heartbeat the status is that of the open until the end") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  run_local(1, [&](communicator world) -> task<> {
    o.heartbeat = std::chrono::milliseconds(0);
    const track::log log = co_await track::open(world, o);
    double first = 0;
    for (std::uint64_t n = 1; n <= 3; ++n) {
      log.scalar("loss", 0, 1);
      while (log.so_far().written < n) co_await sleep_for(std::chrono::milliseconds(1));
      const auto status = read_json(log.directory() / "rank-0.json");
      TUTTI_EXPECT(status["state"] == "running");
      const auto now = status["heartbeat"].get<double>();
      if (n == 1) first = now;
      TUTTI_EXPECT(now == first);
    }
    const track::totals t = co_await log.finish();
    TUTTI_EXPECT(t.complete);
  });
}

TEST_CASE("tracking: the load of this process is a series of every rank") {
  const scratch_directory scratch;
  track::options o = options_in(scratch);
  o.system_metrics = std::chrono::milliseconds(20);
  run_local(2, [&o](communicator world) -> task<> {
    const track::log log = co_await track::open(world, o);
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      log.scalar("n", i, i);
    }
    co_await log.finish();
  });
  const fs::path run = only_run(scratch.path() / "runs");
  for (const char* name : {"system/cpu_percent", "system/memory_mib", "communication/sends"})
    for (const int rank : {0, 1}) CHECK_FALSE(lines_of(run, rank, name).empty());
}

namespace {

// Images are in the event file; the lines have only their names.
task<> more_events_than_room(communicator world, track::options o) {
  const track::log log = co_await track::open(world, o);
  random_numbers numbers(7);
  std::vector<std::uint8_t> pixels(10'000);
  for (std::uint8_t& p : pixels) p = static_cast<std::uint8_t>(numbers.next());
  track::image_view picture;
  picture.width = picture.height = 100;
  picture.samples = pixels;
  for (int step = 0; step < 20; ++step) log.image("a picture", step, picture);
  const track::totals t = co_await log.finish();
  TUTTI_EXPECT(t.written == 20);
  TUTTI_EXPECT(t.failed == 0);
  TUTTI_EXPECT(t.failure.find("the event file") != std::string::npos);
  TUTTI_EXPECT(t.failure.find("ulimit -f") != std::string::npos);
}

}  // namespace

TEST_CASE("tracking: records that fitted on the disk count as written, others are reported") {
  const scratch_directory scratch;
  // A limit on file sizes replaces a full disk, in a process of its own.
  child tracking([&scratch](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    run_local(1, [&scratch](communicator world) {
      return more_events_than_room(std::move(world), options_in(scratch));
    });
    return 0;
  });
  CHECK(tracking.end() == 0);
}

namespace {

task<> leaves_a_child_with_the_console(communicator world, track::options o) {
  const track::log log = co_await track::open(world, o);
  std::puts("mine");
  const std::string pid_file = o.directory + "/pid";
  TUTTI_EXPECT(std::system(("sleep 100 & echo $! > " + pid_file).c_str()) == 0);
  const track::totals t = co_await log.finish();
  TUTTI_EXPECT(::kill(std::stoi(contents(pid_file)), SIGKILL) == 0);
  TUTTI_EXPECT(t.complete);
  TUTTI_EXPECT(contents(log.directory() / "console" / "rank-0.out") == "mine\n");
  TUTTI_EXPECT(read_json(log.directory() / "rank-0.json")["console"].get<std::string>().find(
                   "still writes") != std::string::npos);
}

}  // namespace

TEST_CASE("tracking: a log finishes while a child of the rank keeps the console") {
  TUTTI_NEEDS_A_KERNEL("fork a process with threads");
  const scratch_directory scratch;
  child tracking([&scratch](const auto&) {
    ::dup2(base::unique_fd(::open("/dev/null", O_WRONLY | O_CLOEXEC)).get(), STDOUT_FILENO);
    run_local(1, [&scratch](communicator world) {
      track::options o = options_in(scratch);
      o.console = true;
      return leaves_a_child_with_the_console(std::move(world), o);
    });
    return 0;
  });
  CHECK(tracking.end() == 0);
}

namespace {

task<> more_output_than_room(communicator world, track::options o) {
  const track::log log = co_await track::open(world, o);
  const std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) std::puts(line.c_str());
  co_await log.finish();
}

}  // namespace

TEST_CASE("tracking: a rank whose console file is full continues") {
  const scratch_directory scratch;
  child tracking([&scratch](const auto&) {
    ::signal(SIGXFSZ, SIG_DFL);
    ::dup2(base::unique_fd(::open("/dev/null", O_WRONLY | O_CLOEXEC)).get(), STDOUT_FILENO);
    const rlimit limit{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    run_local(1, [&scratch](communicator world) {
      track::options o = options_in(scratch);
      o.console = true;
      return more_output_than_room(std::move(world), o);
    });
    return 0;
  });
  CHECK(tracking.end() == 0);
}
