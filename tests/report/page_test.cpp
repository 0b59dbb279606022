// SPDX-License-Identifier: Apache-2.0
// The page and the summary: their contents, and that no text of ranks becomes markup.
#include "report/page.hpp"

#include "report/written_run.hpp"
#include "support/local_world.hpp"
#include "track/run_reader.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <regex>
#include <string>
#include <tutti/track.hpp>

using namespace tutti;
using namespace tutti::test;
using namespace tutti::report;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

task<> say(communicator world, track::options o) {
  const track::log log = co_await track::open(world, o);
  track::hyperparameter_map parameters;
  parameters.insert_or_assign("rate", 0.25);
  parameters.insert_or_assign("seed of each", world.rank());
  log.hyperparameters(parameters);
  for (int step = 0; step < 50; ++step) {
    log.scalar("loss", step, 1.0 / (1 + step) + world.rank());
    track::step_times times;
    times.compute_seconds = 0.010 + 0.002 * world.rank();
    times.communication_seconds = 0.001;
    times.waiting_seconds = 0.004 - 0.002 * world.rank();
    log.times(step, times);
  }
  log.text("remark", 3, "said by one");
  const std::vector<float> values{1, 2, 3};
  log.histogram("weights", 4, values);
  const std::vector<std::uint8_t> pixels(16, 200);
  track::image_view picture;
  picture.width = picture.height = 4;
  picture.samples = pixels;
  log.image("a picture", 5, picture);
  log.artifact("model.bin", std::as_bytes(std::span(values)));
  co_await log.finish();
}

}  // namespace

TEST_CASE("page: a run of two ranks, with everything in it") {
  const scratch_directory scratch;
  track::options o;
  o.directory = scratch.path().string();
  o.name = "everything";
  o.console = false;
  run_local(2, [&o](communicator world) { return say(std::move(world), o); });
  scratch.write("everything/rank-1.jsonl.copy", "not of a run");
  const run_data run = read_run(scratch.path() / "everything");
  const std::string page = page_of(run);
  for (const char* heading : {"Ranks", "Curves", "Where the time went", "Stragglers", "Hyperparameters",
                              "Texts", "Images", "Histograms", "Artifacts", "How it was run"}) {
    CAPTURE(heading);
    CHECK(has(page, "<h2>" + std::string(heading) + "</h2>"));
  }
  CHECK(has(page, ">loss</text>"));
  CHECK(has(page, "data-line=\"1\""));
  CHECK(has(page, "said by one"));
  CHECK(has(page, "src=\"data:image/png;base64,iVBOR"));
  CHECK(has(page, "href=\"./artifacts/rank-1/model.bin\""));
  CHECK(has(page, "0.25<br>"));  // once, because all agree
  CHECK(has(page, "1 <span class=soft>(rank 1)</span>"));
  // Nothing is fetched or run. The only links lead to artifacts.
  CHECK(has(page, "default-src 'none'"));
  CHECK_FALSE(has(page, "<script"));
  CHECK_FALSE(has(page, "http://"));
  CHECK_FALSE(has(page, "https://"));
  const std::regex address(R"re((?:src|href)="(?!data:image/png;base64,|\./))re");
  CHECK_FALSE(std::regex_search(page, address));

  const std::string summary = summary_of(run);
  CHECK(has(summary, "everything: 2 ranks"));
  CHECK(std::regex_search(summary, std::regex(R"(\n +1 +finished +\S+ +\d+ +\d+ +0 +0\n)")));
  CHECK(std::regex_search(summary, std::regex(R"(\nloss +0 +50 +1 +0\.02 +0\.02\n)")));
  // Rank 1 computes longest in all 50 steps.
  CHECK(std::regex_search(summary, std::regex(R"(\n +1 +0\.\d+ +[\d.]+% +[\d.]+% +[\d.]+% +50 +0\.0%\n)")));
}

TEST_CASE("page: names and texts are escaped, whatever they contain") {
  const std::string hostile = "<script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\x1b[31m";
  const written_run run;
  run.facts(2, hostile);
  nlohmann::json line{{"kind", "text"}, {"name", hostile}, {"step", 1}, {"value", hostile}};
  std::string lines = written_run::scalar(hostile, 1, 1) + line.dump() + "\n";
  line = {{"kind", "hyperparameters"}, {"values", {{hostile, hostile}}}};
  lines += line.dump() + "\n";
  line = {{"kind", "histogram"}, {"name", hostile}, {"step", 1}, {"min", 0}, {"max", 1},
          {"limits", {1}},       {"counts", {1}}};
  lines += line.dump() + "\n";
  for (const char* file : {"../../etc/passwd", "/etc/passwd", "artifacts/rank-0/\"><script>",
                           "javascript:alert(1)", "//host/x"}) {
    line = {{"kind", "artifact"}, {"name", "a"}, {"file", file}, {"bytes", 1}};
    lines += line.dump() + "\n";
    line["kind"] = "image";
    lines += line.dump() + "\n";
  }
  run.rank(0, "finished", lines);
  nlohmann::json status = written_run::status(1, "running");
  status["host"] = status["failure"] = hostile;
  run.file("rank-1.json", status.dump());
  run.file("console/rank-0.out", hostile + "\0 and \xff\xfe no UTF-8\rover it\n");
  const run_data data = read_run(run.path());
  const std::string page = page_of(data);
  CHECK_FALSE(has(page, "<script"));
  CHECK_FALSE(has(page, "<img src=x"));
  CHECK_FALSE(has(page, "etc/passwd"));
  CHECK_FALSE(has(page, "\x1b"));
  CHECK(has(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
  CHECK(has(page, "href=\"./javascript%3Aalert%281%29\""));
  CHECK(has(page, "href=\"./artifacts/rank-0/%22%3E%3Cscript%3E\""));
  CHECK_FALSE(has(page, "href=\"//"));
  const std::string summary = summary_of(data);
  for (const char c : summary) CHECK((static_cast<unsigned char>(c) >= 0x20 || c == '\n'));
}

TEST_CASE("page: unfinished ranks and dropped records are reported") {
  const written_run run;
  run.facts(4);
  nlohmann::json status = written_run::status(0, "running");
  status["process_started_ticks"] = 1;
  run.file("rank-0.json", status.dump());
  run.file("rank-0.jsonl", written_run::scalar("loss", 0, 1) + "{\"kind\":\"scal");
  run.file("console/rank-0.out", "last words\n");
  const run_data data = read_run(run.path());
  const std::string page = page_of(data);
  CHECK(has(page, "class=\"died\">died"));
  CHECK(has(page, "3 of 4 ranks have left nothing here"));
  CHECK(has(page, "1 damaged line is left out"));
  CHECK(has(page, "<details open><summary>rank 0, standard output</summary><pre>last words\n</pre>"));
  CHECK(has(summary_of(data), "3 ranks have left nothing"));
  CHECK(has(summary_of(data), "rank-0.jsonl: 1 damaged line is left out"));
}

TEST_CASE("page: several runs side by side") {
  const written_run first, second;
  first.facts(2, "first");
  second.facts(1, "second <b>");
  const auto hyperparameters = [](const nlohmann::json& values) {
    return nlohmann::json({{"kind", "hyperparameters"}, {"values", values}}).dump() + "\n";
  };
  for (const int rank : {0, 1})
    first.rank(rank, "finished",
               hyperparameters({{"rate", 0.5}, {"layers", 3}, {"seed", rank}}) +
                   written_run::scalar("loss", 0, 4 + 2 * rank) +
                   written_run::scalar("loss", 1, 1 + 2 * rank) + written_run::scalar("time/compute", 0, 1));
  second.rank(0, "finished",
              hyperparameters({{"rate", 0.25}, {"layers", 3}, {"decay", "yes"}}) +
                  written_run::scalar("loss", 0, 5) + written_run::scalar("loss", 1, 0.125) +
                  written_run::scalar("accuracy", 1, 0.75));
  const std::string page = comparison_of({read_run(first.path()), read_run(second.path())});
  CHECK(has(page, "<h1>2 runs</h1>"));
  CHECK(has(page, "</span>first<"));
  CHECK(has(page, "</span>second &lt;b&gt;<"));
  // One chart for each series, with a line for each of its runs.
  const auto times = [&](const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = page.find(part, at)) != page.npos; at += part.size()) ++count;
    return count;
  };
  CHECK(times("<svg class=\"chart\"") == 3);
  CHECK(times("class=\"line\" data-line=\"0\"") == 2);
  CHECK(times("class=\"line\" data-line=\"1\"") == 2);
  CHECK(has(page, "<title>first</title></path>"));
  CHECK(has(page, "<summary>Time and machine</summary>"));
  // Differing hyperparameters, and the last values, averaged over the ranks.
  const std::size_t parameters = page.find("<h2>Hyperparameters that differ</h2>");
  const std::size_t values = page.find("<h2>Last values</h2>");
  REQUIRE(parameters != page.npos);
  REQUIRE(values != page.npos);
  const std::string differing = page.substr(parameters, values - parameters), last = page.substr(values);
  CHECK(has(differing, "<th class=n>decay</th><th class=n>rate</th><th class=n>seed</th>"));
  CHECK_FALSE(has(differing, "layers"));
  CHECK(has(differing, "<td class=n></td><td class=n>0.5</td><td class=n>0, 1</td>"));
  CHECK(has(differing, "<td class=n>yes</td><td class=n>0.25</td><td class=n></td>"));
  CHECK(has(last, "<th class=n>accuracy</th><th class=n>loss</th></tr>"));
  CHECK(has(last, "<td class=n></td><td class=n>2</td>"));
  CHECK(has(last, "<td class=n>0.75</td><td class=n>0.125</td>"));
  CHECK_FALSE(has(page, "<script"));
}

TEST_CASE("page: directories distinguish runs of one name") {
  run_data a, b, other;
  a.name = b.name = "same";
  a.directory = "runs/1";
  b.directory = "runs/2";
  other.name = "other";
  other.directory = "runs/3";
  const std::string page = comparison_of({a, b, other});
  CHECK(has(page, "</span>same (runs/1)<"));
  CHECK(has(page, "</span>same (runs/2)<"));
  CHECK(has(page, "</span>other<"));
  CHECK_FALSE(has(page, "<h2>Curves</h2>"));
}

TEST_CASE("page: many points make a chart of bounded size that keeps their extremes") {
  run_data run;
  run.ranks.resize(1);
  run.ranks[0].rank = 0;
  auto& points = run.ranks[0].series["n"];
  for (int i = 0; i < 200'000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.001)});
  points[77'777].value = 1000;
  points[77'778].value = NAN;
  const std::string page = page_of(run);
  CHECK(page.size() < 80'000);
  CHECK(has(page, "class=\"shadow\""));
  CHECK(has(page, ">1000</text>"));
  CHECK_FALSE(has(page, "nan"));
}

TEST_CASE("page: numbers of every magnitude, infinities and NaNs") {
  run_data run;
  run.ranks.resize(1);
  auto& series = run.ranks[0].series;
  series["large"] = {{0, -1.7e308}, {1, 1.7e308}};
  series["none"] = {{0, NAN}, {1, INFINITY}};
  series["one"] = {{5, 3}};
  series["still"] = {{0, 0}, {1, 0}};
  series["empty"] = {};
  series["never"] = {{0, NAN}, {1, NAN}};
  run.ranks[0].histograms["h"] = {};
  const std::string page = page_of(run);
  CHECK(has(page, "no finite value"));
  for (const char* word : {"nan", "inf\"", "inf ", ">inf", ">-inf"}) CHECK_FALSE(has(page, word));
  CHECK(std::regex_search(summary_of(run), std::regex(R"(\nnever .* nan +nan +nan\n)")));
}

TEST_CASE("page: a time that no clock has shown, from a damaged file, is left out") {
  for (const double seconds : {-1.0, 1e15, 1e300, std::nan(""), HUGE_VAL}) CHECK(time_text(seconds).empty());
  CHECK(time_text(1e9).starts_with("2001-09-"));
}
