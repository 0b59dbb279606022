// SPDX-License-Identifier: Apache-2.0
// Runs in every condition: whole, partial, damaged; with ranks that live, have ended, or never came.
#include "report/run_data.hpp"

#include "base/process_state.hpp"
#include "report/page.hpp"
#include "report/written_run.hpp"
#include "support/local_world.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::report;

TEST_CASE("run_data: the records of ranks") {
  const written_run run;
  run.facts(2);
  run.rank(0, "finished",
           written_run::scalar("loss", 0, 1.5) + written_run::scalar("loss", 1, "NaN") +
               written_run::scalar("loss", 2, "-Infinity") +
               R"({"kind":"hyperparameters","time":1,"values":{"rate":0.5,"name":"x"}})"
               "\n"
               R"({"kind":"text","name":"t","step":7,"value":"words"})"
               "\n"
               R"({"kind":"artifact","name":"m","file":"artifacts/rank-0/m","bytes":12})"
               "\n"
               R"({"kind":"something of a later version","name":"m"})"
               "\n");
  run.rank(1, "closed", written_run::scalar("loss", 0, 2));
  run.file("console/rank-1.err", "oh\n");
  const run_data r = read_run(run.path());
  CHECK(r.name == "a run");
  CHECK(r.size == 2);
  REQUIRE(r.ranks.size() == 2);
  const rank_data& first = r.ranks[0];
  CHECK(first.state == rank_state::finished);
  REQUIRE(first.series.at("loss").size() == 3);
  CHECK(first.series.at("loss")[0].value == 1.5);
  CHECK(std::isnan(first.series.at("loss")[1].value));
  CHECK(first.series.at("loss")[2].value == -INFINITY);
  CHECK(first.hyperparameters.at("rate") == "0.5");
  CHECK(first.hyperparameters.at("name") == "x");
  CHECK(first.texts.at(0).content == "words");
  CHECK(first.artifacts.at(0).path == "artifacts/rank-0/m");
  CHECK(first.unreadable_lines == 0);
  CHECK(r.ranks[1].state == rank_state::closed);
  CHECK(r.ranks[1].error == "oh\n");
}

TEST_CASE("run_data: a rank that claims to run, but does not, has died") {
  const written_run run;
  run.facts(4);
  run.rank(0, "running", "");
  nlohmann::json status = written_run::status(1, "running");
  status["process_started_ticks"] = 1;  // another process with the same number
  run.file("rank-1.json", status.dump());
  status["boot"] = "another";  // this host before a reboot
  status["heartbeat"] = 1.7e9;
  run.file("rank-2.json", status.dump());
  status["host"] = "far away";
  run.file("rank-3.json", status.dump());
  const run_data r = read_run(run.path());
  REQUIRE(r.ranks.size() == 4);
  CHECK(r.ranks[0].state == rank_state::running);
  CHECK(r.ranks[1].state == rank_state::died);
  CHECK(r.ranks[2].state == rank_state::died);
  CHECK(r.ranks[3].state == rank_state::unresponsive);
  status["heartbeat"] = track::seconds_since_1970();
  run.file("rank-3.json", status.dump());
  CHECK(read_run(run.path()).ranks[3].state == rank_state::running);
}

TEST_CASE(
    "run_data: a process of another pid namespace, or of a machine of this name, is not said to have died") {
  const written_run run;
  run.facts(2);
  nlohmann::json status = written_run::status(0, "running");
  status["pid"] = 1 << 30;  // none here has this number
  status["pid_space"] = 1;
  run.file("rank-0.json", status.dump());
  status["boot"] = "another";
  run.file("rank-1.json", status.dump());
  for (const rank_data& rank : read_run(run.path()).ranks) CHECK(rank.state == rank_state::running);
  status["boot"] = written_run::status(0, "running")["boot"];
  status["heartbeat"] = 1.7e9;
  run.file("rank-0.json", status.dump());
  CHECK(read_run(run.path()).ranks.at(0).state == rank_state::unresponsive);
}

TEST_CASE("run_data: a process of this host that no longer writes is not said to run") {
  const written_run run;
  run.facts(2);
  nlohmann::json status = written_run::status(0, "running");
  status["heartbeat"] = 1.7e9;
  run.file("rank-0.json", status.dump());
  status["pid"] = 1 << 30;  // none has this number
  status["process_started_ticks"] = 0;
  run.file("rank-1.json", status.dump());
  const run_data r = read_run(run.path());
  CHECK(r.ranks.at(0).state == rank_state::unresponsive);
  CHECK(r.ranks.at(1).state == rank_state::died);
}

TEST_CASE("run_data: damaged files are named") {
  const written_run run;
  run.facts(2);
  run.rank(0, "finished", "{\n");
  run.rank(1, "finished", "");
  CHECK(read_run(run.path()).damage == std::vector<std::string>{"rank-0.jsonl: 1 damaged line is left out"});
  run.file("rank-1.json", "{\"rank\":1");
  run.file("run.json", "[]");
  const run_data r = read_run(run.path());
  const std::vector<std::string> named = {
      "rank-0.jsonl: 1 damaged line is left out", "rank-1.json is damaged: the state of rank 1 is not known",
      "run.json is missing or damaged: the run's command and versions are not known"};
  CHECK(r.damage == named);
  for (const std::string& damage : named) CHECK(summary_of(r).find(damage + "\n") != std::string::npos);
  CHECK(page_of(r).find("rank-1.json is damaged") != std::string::npos);
}

TEST_CASE("run_data: a rank whose process is stopped is said to be so") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int how = 0;
  REQUIRE(::waitpid(child, &how, WUNTRACED) == child);
  const written_run run;
  run.facts(1);
  nlohmann::json status = written_run::status(0, "running");
  status["pid"] = child;
  status["process_started_ticks"] = base::start_of_process(child);
  run.file("rank-0.json", status.dump());
  const rank_state state = read_run(run.path()).ranks[0].state;
  ::kill(child, SIGKILL);
  ::waitpid(child, &how, 0);
  CHECK(state == rank_state::stopped);
}

TEST_CASE("run_data: ranks with labels are not absent") {
  const written_run run;
  run.facts(3);
  for (const int rank : {0, 2}) {
    nlohmann::json status = written_run::status(rank, "finished");
    status["label"] = "worker" + std::to_string(rank);
    run.file("label-worker" + std::to_string(rank) + ".json", status.dump());
  }
  CHECK(read_run(run.path()).absent() == 1);
}

TEST_CASE("run_data: records of another type than theirs are damaged") {
  const written_run run;
  run.facts(1);
  run.rank(0, "finished",
           written_run::scalar("loss", 0, 1) + R"({"kind":"scalar","name":"loss","step":1,"value":[1]})"
                                               "\n"
                                               R"({"kind":"scalar","name":"loss","step":"2","value":1})"
                                               "\n"
                                               R"({"kind":"scalar","name":"loss","step":3,"value":null})"
                                               "\n"
                                               R"({"kind":7,"name":"loss","step":3,"value":1})"
                                               "\n"
                                               R"({"kind":"text","name":"t","step":3,"value":1})"
                                               "\n"
                                               R"({"kind":"hyperparameters","values":[1]})"
                                               "\n");
  const rank_data r = read_run(run.path()).ranks[0];
  CHECK(r.series.at("loss").size() == 1);
  CHECK(r.unreadable_lines == 6);
}

TEST_CASE("run_data: written records are counted by lines, even if an old status says otherwise") {
  const written_run run;
  run.facts(1);
  std::string lines;
  for (int i = 0; i < 5; ++i)
    lines += written_run::scalar("loss", i, i) + written_run::scalar("system/cpu_percent", i, i);
  run.rank(0, "running", lines);  // its status counts 3
  CHECK(read_run(run.path()).ranks.at(0).written == 5);
  run.rank(0, "running", written_run::scalar("loss", 0, 0));
  CHECK(read_run(run.path()).ranks.at(0).written == 3);
}

TEST_CASE("run_data: a long name does not fill the summary") {
  const written_run run;
  run.facts(1);
  std::string name = "loss";
  for (int i = 0; i < 50'000; ++i) name += "\u00e9";
  run.rank(0, "finished", written_run::scalar(name, 0, 1.5));
  const std::string summary = summary_of(read_run(run.path()));
  CHECK(summary.size() < 1000);
  CHECK(summary.find("loss\u00e9\u00e9") != std::string::npos);
  CHECK(summary.find("\u00e9...") != std::string::npos);
}

TEST_CASE("run_data: the error for another directory says what a run is") {
  const written_run nothing;
  for (const auto& path : {nothing.path(), nothing.path() / "not there"}) {
    try {
      read_run(path);
      FAIL("read");
    } catch (const std::runtime_error& e) {
      CHECK(std::string(e.what()).find("is no run") != std::string::npos);
    }
  }
  nothing.file("rank-99999999999.json", "{}");
  nothing.file("rank-.json", "{}");
  nothing.file("rank-1x.json", "{}");
  CHECK_THROWS_AS(read_run(nothing.path()), std::runtime_error);
}

TEST_CASE("run_data: ranks are found without run.json, and with empty statuses") {
  const written_run run;
  run.file("rank-0.json", "");
  run.file("rank-1.json", "[1,2]");
  run.file("rank-2.json", R"({"pid":"a word","written":-1,"heartbeat":{}})");
  run.file("rank-0.jsonl",
           "null\n[]\n{}\n{\"kind\":7}\n\n{\"kind\":\"scalar\"}\n{\"kind\":\"histogram\",\"min\":0}\n");
  const run_data r = read_run(run.path());
  CHECK(r.ranks.size() == 3);
  CHECK(r.size == 3);
  CHECK(r.ranks[0].unreadable_lines == 7);
  CHECK_FALSE(page_of(r).empty());
  CHECK_FALSE(summary_of(r).empty());
}

TEST_CASE("run_data: a run truncated or changed at any byte can be read, and the loss is counted") {
  const written_run run;
  run.facts(2);
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += written_run::scalar("loss", i, i);
  lines +=
      R"({"kind":"histogram","name":"h","step":1,"time":1,"min":0,"max":1,"limits":[0.5,1],"counts":[1,2]})"
      "\n";
  lines += R"({"kind":"hyperparameters","time":1,"values":{"a":[1,{"b":2}],"c":null}})"
           "\n";
  run.rank(0, "running", lines);
  const std::string status = written_run::status(1, "running").dump(),
                    facts = scratch_directory().read(run.path() / "run.json");
  run.rank(1, "running", lines);
  random_numbers random(seed_of_this_run());
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    std::string some = lines, damaged_status = status, damaged_facts = facts;
    for (std::string* text : {&some, &damaged_status, &damaged_facts}) {
      if (random.one_in(2)) text->resize(random.below(text->size()));
      for (std::size_t i = 0; i < 3 && !text->empty(); ++i)
        if (random.one_in(2)) (*text)[random.below(text->size())] = static_cast<char>(random.next());
    }
    run.file("rank-1.jsonl", some);
    run.file("rank-1.json", damaged_status);
    run.file("run.json", damaged_facts);
    const run_data r = read_run(run.path());
    REQUIRE(r.ranks.size() == 2);
    CHECK(r.ranks[0].series.at("loss").size() == 40);
    CHECK(page_of(r).ends_with("</html>\n"));
    CHECK_FALSE(summary_of(r).empty());
  }
  // A rank that was killed while it wrote.
  run.facts(2);
  run.rank(1, "running", lines.substr(0, lines.size() / 2));
  CHECK(read_run(run.path()).ranks[1].unreadable_lines <= 1);
  CHECK(read_run(run.path()).ranks[1].series.at("loss").size() > 10);
}

TEST_CASE("run_data: a run of another reads only its own regular files, and not without end") {
  const scratch_directory others;
  std::filesystem::create_directory(others.path() / "images");
  std::ofstream(others.path() / "images" / "secret.png") << "secret";
  std::ofstream(others.path() / "rank-1.jsonl") << written_run::scalar("secret", 1, 1);
  const written_run run;
  run.facts(2, "named");
  run.rank(0, "finished",
           R"({"kind":"image","name":"outside","file":"images/secret.png","step":1})"
           "\n"
           R"({"kind":"image","name":"inside","file":"own.png","step":1})"
           "\n");
  run.rank(1, "finished", "");
  run.file("pictures/own.png", "picture");
  std::filesystem::create_directory_symlink(others.path() / "images", run.path() / "images");
  std::filesystem::create_symlink("pictures/own.png", run.path() / "own.png");
  std::filesystem::remove(run.path() / "rank-1.jsonl");
  std::filesystem::create_symlink(others.path() / "rank-1.jsonl", run.path() / "rank-1.jsonl");
  std::filesystem::create_directories(run.path() / "console" / "rank-0.out");
  std::filesystem::create_symlink(others.path() / "rank-1.jsonl", run.path() / "console" / "rank-1.out");
  std::filesystem::create_symlink("/dev/zero", run.path() / "console" / "rank-0.err");
  REQUIRE(::mkfifo((run.path() / "console" / "rank-1.err").c_str(), 0600) == 0);
  REQUIRE(::mkfifo((run.path() / "rank-2.json").c_str(), 0600) == 0);
  REQUIRE(::mkfifo((run.path() / "rank-2.jsonl").c_str(), 0600) == 0);
  const run_data r = read_run(run.path());
  CHECK(r.name == "named");
  REQUIRE(r.ranks.size() == 3);
  CHECK(r.ranks[1].series.empty());
  for (const rank_data& one : r.ranks) CHECK((one.output + one.error).empty());
  const std::string page = page_of(r);
  CHECK(page.find("c2VjcmV0") == page.npos);      // "secret" in base64
  CHECK(page.find("cGljdHVyZQ==") != page.npos);  // "picture"
  std::filesystem::remove(run.path() / "run.json");
  std::filesystem::create_symlink("/dev/zero", run.path() / "run.json");
  CHECK(read_run(run.path()).damage.size() == 2);
}

TEST_CASE("run_data: values nested without end are damaged") {
  const written_run run;
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  run.file("run.json", R"({"name":"n","versions":{"a":)" + nested(200'000) + "}}");
  run.rank(0, "finished",
           R"({"kind":"hyperparameters","values":{"deep":)" + nested(200'000) + "}}\n" +
               R"({"kind":"hyperparameters","values":{"flat":)" + nested(90) + "}}\n");
  const run_data r = read_run(run.path());
  CHECK(r.ranks[0].unreadable_lines == 1);
  CHECK(r.ranks[0].hyperparameters.size() == 1);
  CHECK(r.damage.size() == 2);
}

TEST_CASE("run_data: a group of runs is one run") {
  const written_run run;
  for (const int rank : {0, 1}) {
    const std::string folder = "rank-" + std::to_string(rank) + "/";
    run.file(folder + "run.json", R"({"name":"group","ranks":2,"layout":"run_per_rank"})");
    run.file(folder + "rank-" + std::to_string(rank) + ".json", written_run::status(rank, "finished").dump());
    run.file(folder + "rank-" + std::to_string(rank) + ".jsonl",
             written_run::scalar("loss", 1, rank) +
                 R"({"kind":"artifact","name":"m","file":"artifacts/m","bytes":1})"
                 "\n");
  }
  const run_data r = read_run(run.path());
  CHECK(r.name == "group");
  REQUIRE(r.ranks.size() == 2);
  CHECK(r.ranks[1].series.at("loss")[0].value == 1);
  CHECK(r.ranks[1].artifacts.at(0).path == "rank-1/artifacts/m");
}

TEST_CASE("run_data: the slowest rank of a step is the one that computed longest") {
  run_data run;
  run.ranks.resize(3);
  CHECK(times_of(run).empty());
  for (int i = 0; i < 3; ++i) run.ranks[static_cast<std::size_t>(i)].rank = i;
  run.ranks[0].series["time/compute"] = {{0, 1}, {1, 1}, {2, 5}};
  run.ranks[0].series["time/waiting"] = {{0, 2}, {1, 2}, {2, NAN}};
  run.ranks[1].series["time/compute"] = {{0, 3}, {1, 3}, {2, 3}};
  run.ranks[1].series["time/communication"] = {{0, 0.5}};
  const auto times = times_of(run);
  REQUIRE(times.size() == 3);
  CHECK(times[0].compute == 7);
  CHECK(times[0].waiting == 4);
  CHECK(times[0].steps == 3);
  CHECK(times[0].slowest == 1);
  CHECK(times[1].slowest == 2);
  CHECK(times[1].total() == 9.5);
  CHECK(times[2].total() == 0);
}
