// SPDX-License-Identifier: Apache-2.0
// tutti-report as users start it, and its page in a browser, where a script checks the contents.
#include "report/written_run.hpp"
#include "support/command.hpp"
#include "support/skip.hpp"
#include "track/run_reader.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <regex>
#include <string>

using namespace tutti::test;
namespace fs = std::filesystem;

namespace {

const std::string report = quoted(TUTTI_REPORT_PATH);

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Two ranks, one of them killed, with names that contain HTML.
void write_run(const written_run& run) {
  run.facts(2, "<b>a run</b>");
  for (const int rank : {0, 1}) {
    std::string lines;
    for (int step = 0; step < 400; ++step) {
      lines += written_run::scalar("loss <script>document.title='taken'</script>", step,
                                   std::exp(-0.01 * step) + 0.3 * rank);
      lines += written_run::scalar("small", step, -0.000214321 * step);
      lines += written_run::scalar("time/compute", step, 0.01 + 0.004 * rank);
      lines += written_run::scalar("time/communication", step, 0.003);
      lines += written_run::scalar("time/waiting", step, 0.005 - 0.004 * rank);
    }
    lines += R"({"kind":"hyperparameters","values":{"rate":0.01}})"
             "\n";
    run.rank(rank, rank == 0 ? "finished" : "running", lines);
    run.file("console/rank-" + std::to_string(rank) + ".out",
             "<script>document.title='taken'</script>\nline 2\n");
  }
  nlohmann::json status = written_run::status(1, "running");
  status["process_started_ticks"] = 1;
  run.file("rank-1.json", status.dump());
}

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (run_shell("command -v " + std::string(name)).exit_code == 0) return name;
  return {};
}

// The document after rendering.
command_result shown(const std::string& program, const fs::path& page, const fs::path& profile) {
  return run_shell("HOME=" + quoted(profile.string()) + " " + program +
                       " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run " +
                       "--disable-background-networking --window-size=1500,2400 --user-data-dir=" +
                       quoted(profile.string()) + " --dump-dom " + quoted("file://" + page.string()) +
                       " 2>/dev/null",
                   90);
}

// The page forbids scripts, so a copy without that rule runs this script.
constexpr const char* questions = R"(<script>
addEventListener('load', () => {
  const lines = [...document.querySelectorAll('.line')], box = e => e.getBoundingClientRect();
  const say = (name, value) => document.body.setAttribute('data-' + name, value);
  say('lines', lines.filter(l => l.getTotalLength() > 100 && box(l).width > 100).length);
  say('shadows', document.querySelectorAll('.shadow').length);
  say('outside', lines.filter(l => { const a = box(l), b = box(l.ownerSVGElement);
    return b.width > 0 && (a.left < b.left || a.right > b.right + 1 || a.top < b.top || a.bottom > b.bottom); }).length);
  say('clipped', [...document.querySelectorAll('svg text')].filter(t => { const a = box(t), b = box(t.ownerSVGElement); return a.left < b.left || a.right > b.right + 1; }).length);
  say('colours', new Set(lines.map(l => getComputedStyle(l).stroke)).size);
  say('bars', [...document.querySelectorAll('.bars rect')].filter(r => box(r).width > 1).length);
  say('wide', document.documentElement.scrollWidth <= innerWidth);
  say('fetched', performance.getEntriesByType('resource').length);
  say('scripts', document.scripts.length);
  say('bold', document.querySelectorAll('b').length);
});
</script>)";

}  // namespace

TEST_CASE("tutti-report: a wrong command line is exit code 2; the page goes to standard output if asked") {
  CHECK(run_shell(report + " --no-such-option 2>&1").exit_code == 2);
  CHECK(run_shell(report + " 2>&1").exit_code == 2);
  CHECK(run_shell(report + " --help").exit_code == 0);
  CHECK(run_shell(report + " /no/such/run 2>&1").exit_code == 1);
  const written_run run;
  run.facts(1);
  run.rank(0, "finished", "");
  const command_result page = run_shell(report + " -o - " + quoted(run.path().string()));
  CHECK(page.exit_code == 0);
  CHECK(has(page.output, "<html"));
}

TEST_CASE("tutti-report: a page and a summary; errors name their cause") {
  const written_run run;
  write_run(run);
  const command_result good = run_shell(report + " " + quoted(run.path().string()));
  CAPTURE(good.output);
  CHECK(good.exit_code == 0);
  CHECK(good.says("2 ranks"));
  CHECK(good.says("died"));
  CHECK(good.says((run.path() / "report.html").string()));
  CHECK(contents(run.path() / "report.html").starts_with("<!DOCTYPE html>"));
  // Again, to another file, quietly.
  const std::string elsewhere = (run.path() / "x.html").string();
  CHECK(run_shell(report + " -q " + quoted(run.path().string()) + " -o " + quoted(elsewhere)).output.empty());
  CHECK(fs::exists(elsewhere));

  const command_result bad = run_shell(report + " /nowhere/at/all");
  CHECK(bad.exit_code == 1);
  CHECK(bad.says("/nowhere/at/all is no run"));
  const command_result unwritable =
      run_shell(report + " -q " + quoted(run.path().string()) + " -o /nowhere/at/all/x.html");
  CHECK(unwritable.exit_code == 1);
  CHECK(unwritable.says("--output names another file"));
  CHECK(run_shell(report).exit_code != 0);
}

TEST_CASE("tutti-report: output to devices, pipes and links") {
  const written_run run;
  write_run(run);
  const fs::path fifo = run.path() / "fifo", link = run.path() / "link", target = run.path() / "target.html";
  const auto write_to = [&](const fs::path& page) {
    return run_shell(report + " -q " + quoted(run.path().string()) + " -o " + quoted(page.string()));
  };
  SUBCASE("a pipe") {
    const command_result both = run_shell(
        "mkfifo " + quoted(fifo.string()) + " && { head -c 15 " + quoted(fifo.string()) + " & } && " +
        report + " -q " + quoted(run.path().string()) + " -o " + quoted(fifo.string()) + "; wait");
    CHECK(both.output == "<!DOCTYPE html>");
    CHECK(fs::is_fifo(fs::symlink_status(fifo)));
  }
  SUBCASE("a link to a device") {
    fs::create_symlink("/dev/null", link);
    CHECK(write_to(link).exit_code == 0);
    CHECK(fs::is_symlink(link));
    CHECK(fs::is_character_file("/dev/null"));
  }
  SUBCASE("a full device") {
    fs::create_symlink("/dev/full", link);
    const command_result full = write_to(link);
    CHECK(full.exit_code == 1);
    CHECK(full.says("No space left on device"));
    CHECK(fs::is_symlink(link));
  }
  SUBCASE("a link to a file, and to a missing file") {
    fs::create_symlink("target.html", link);
    for (const char* round : {"none yet", "there"}) {
      CAPTURE(round);
      CHECK(write_to(link).exit_code == 0);
      CHECK(fs::read_symlink(link) == "target.html");
      CHECK(contents(target).starts_with("<!DOCTYPE html>"));
    }
  }
  SUBCASE("standard output, which then has only the page") {
    const command_result page = run_shell(report + " " + quoted(run.path().string()) + " -o /dev/stdout");
    CHECK(page.exit_code == 0);
    CHECK(page.output.starts_with("<!DOCTYPE html>"));
    CHECK(page.output.ends_with("</html>\n"));
    run_shell(report + " " + quoted(run.path().string()) + " -o /dev/stdout >" + quoted(target.string()));
    CHECK(contents(target) == page.output);
  }
}

TEST_CASE("tutti-report: the page in a run of another replaces a link, and leaves its target alone") {
  const written_run run, others;
  write_run(run);
  others.file("precious", "words");
  fs::create_symlink(others.path() / "precious", run.path() / "report.html");
  CHECK(run_shell(report + " -q " + quoted(run.path().string())).exit_code == 0);
  CHECK(contents(others.path() / "precious") == "words");
  CHECK(fs::is_regular_file(fs::symlink_status(run.path() / "report.html")));
}

TEST_CASE("tutti-report: a page without space on the disk leaves no file") {
  const written_run run;
  write_run(run);
  const command_result full = run_shell("ulimit -f 4; " + report + " -q " + quoted(run.path().string()) +
                                        " -o " + quoted((run.path() / "page.html").string()));
  CHECK(full.exit_code == 1);
  CHECK(full.says("cannot be written: File too large"));
  CHECK_FALSE(fs::exists(run.path() / "page.html"));
  for (const auto& entry : fs::directory_iterator(run.path()))
    CHECK_FALSE(entry.path().filename().string().starts_with(".new"));
}

TEST_CASE("tutti-report: several runs in one page, with a summary of each") {
  const written_run first, second;
  write_run(first);
  second.facts(1, "second run");
  second.rank(0, "finished", written_run::scalar("small", 3, 7));
  const scratch_directory scratch;
  const fs::path runs = scratch.path() / "runs";
  fs::create_directory(runs);
  fs::create_directory_symlink(first.path(), runs / "first");
  fs::create_directory_symlink(second.path(), runs / "second");
  fs::create_directory_symlink(second.path(), runs / "second-again");
  for (const char* round : {"without a page", "with the page of the round before among the names"}) {
    CAPTURE(round);
    const command_result good =
        run_shell("cd " + quoted(scratch.path().string()) + " && " + report + " runs/*");
    CAPTURE(good.output);
    CHECK(good.exit_code == 0);
    CHECK(good.says("<b>a run</b>: 2 ranks"));
    CHECK(good.times("second run: 1 ranks") == 1);
    CHECK(good.output.ends_with("\nruns/report.html\n"));
    CHECK(has(contents(runs / "report.html"), "<h1>2 runs</h1>"));
  }
  const command_result bad =
      run_shell(report + " " + quoted(first.path().string()) + " " + quoted(scratch.path().string()));
  CHECK(bad.exit_code == 1);
  CHECK(bad.says("is no run"));
}

TEST_CASE("tutti-report: the page in a browser") {
  const std::string program = browser();
  if (program.empty()) TUTTI_SKIP("no Chromium: apt-get install chromium");
  const written_run run;
  write_run(run);
  REQUIRE(run_shell(report + " -q " + quoted(run.path().string())).exit_code == 0);
  const fs::path page = run.path() / "report.html", profile = run.path() / "profile";
  const command_result as_it_is = shown(program, page, profile);
  if (as_it_is.exit_code != 0 && !has(as_it_is.output, "<html")) TUTTI_SKIP("Chromium does not start here");
  CHECK(as_it_is.says("<title>&lt;b&gt;a run&lt;/b&gt;</title>"));
  for (const char* heading : {"Ranks", "Curves", "Where the time went", "Stragglers", "Hyperparameters",
                              "Console", "How it was run"})
    CHECK_MESSAGE(as_it_is.says("<h2>" + std::string(heading) + "</h2>"), heading);
  CHECK_FALSE(as_it_is.says("<script"));

  std::string asked = contents(page);
  asked = std::regex_replace(asked, std::regex("<meta http-equiv=[^>]*>"), questions,
                             std::regex_constants::format_first_only);
  run.file("asked.html", asked);
  const command_result answers = shown(program, run.path() / "asked.html", profile);
  CAPTURE(answers.output.substr(0, 4000));
  CHECK(answers.says("data-lines=\"10\""));    // two series and three times of both ranks
  CHECK(answers.says("data-shadows=\"10\""));  // of 400 points each
  CHECK(answers.says("data-outside=\"0\""));
  CHECK(answers.says("data-clipped=\"0\""));
  CHECK(answers.says("data-colours=\"2\""));
  CHECK(answers.says("data-bars=\"6\""));
  CHECK(answers.says("data-wide=\"true\""));
  CHECK(answers.says("data-fetched=\"0\""));
  CHECK(answers.says("data-scripts=\"1\""));  // the test's own
  CHECK(answers.says("data-bold=\"0\""));
}
