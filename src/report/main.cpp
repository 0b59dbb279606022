// SPDX-License-Identifier: Apache-2.0
// tutti-report RUN...: the records of a run, or several runs side by side, as one page and in a few lines.
#include "base/files.hpp"
#include "base/unique_fd.hpp"
#include "report/page.hpp"
#include "track/run_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace fs = std::filesystem;
using tutti::report::run_data;

// Among several, as from "runs/*", paths that are no directory are skipped, and a run named twice counts
// once.
std::vector<run_data> read_runs(const std::vector<std::string>& directories) {
  std::vector<run_data> runs;
  std::vector<fs::path> seen;
  for (const std::string& directory : directories) {
    std::error_code unknown;
    if (directories.size() > 1 && fs::exists(directory, unknown) && !fs::is_directory(directory, unknown))
      continue;
    const fs::path place = fs::weakly_canonical(directory, unknown);
    if (!unknown && std::ranges::find(seen, place) != seen.end()) continue;
    seen.push_back(place);
    runs.push_back(tutti::report::read_run(directory));
  }
  if (runs.empty()) throw std::runtime_error("none of these is the directory of a run");
  return runs;
}

// In the run; for several, in their common directory, or else in the current one.
fs::path usual_page(const std::vector<run_data>& runs) {
  if (runs.size() == 1) return runs.front().directory / "report.html";
  const auto parent = [](const run_data& run) {
    return fs::path(run.directory / "").lexically_normal().parent_path().parent_path();
  };
  const fs::path first = parent(runs.front());
  const bool same = std::ranges::all_of(runs, [&](const run_data& run) { return parent(run) == first; });
  return same ? first / "report.html" : fs::path("report.html");
}

// Whether `path` is the target of standard output, such as /dev/stdout.
bool is_standard_output(const fs::path& path) {
  struct stat named{}, output{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
         named.st_dev == output.st_dev && named.st_ino == output.st_ino;
}

// A regular file appears as a whole or not at all, at the end of symbolic links to it. Devices, pipes and
// standard output are written as they are. Returns false with errno; nothing is then left behind.
bool write_page(const fs::path& path, const std::string& content) {
  if (is_standard_output(path)) return tutti::base::write_all(STDOUT_FILENO, content) == content.size();
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(path, failed))) return tutti::track::replace_file(path, content);
  if (fs::is_regular_file(path, failed)) return tutti::track::replace_file(fs::canonical(path), content);
  const tutti::base::unique_fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666));
  return fd && tutti::base::write_all(fd.get(), content) == content.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> directories;
  std::string output;
  bool quiet = false;
  CLI::App app(
      "Reads runs of tutti's tracking, finished or not, and writes one HTML page that needs no network: of "
      "one run, or of several side by side.",
      "tutti-report");
  app.add_option("RUN", directories, "directories of runs, such as runs/2026-01-31_23-59-59 or runs/*")
      ->required();
  app.add_option("-o,--output", output,
                 "the page (default: report.html in the run; of several, in the directory that they are in); "
                 "-: standard output")
      ->type_name("FILE");
  app.add_flag("-q,--quiet", quiet, "no summary on standard output");
  app.footer(
      "The exit code is 0, 1 when a run cannot be read or the page not written, 2 for a wrong command line.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (output == "-") output = "/dev/stdout";
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error like others
  try {
    const std::vector<run_data> runs = read_runs(directories);
    const fs::path page = output.empty() ? usual_page(runs) : fs::path(output);
    quiet = quiet || (!output.empty() && is_standard_output(page));
    if (!quiet)
      for (const run_data& run : runs)
        std::printf("%s%s", &run == &runs.front() ? "" : "\n", tutti::report::summary_of(run).c_str());
    std::fflush(stdout);
    const std::string content =
        runs.size() == 1 ? tutti::report::page_of(runs.front()) : tutti::report::comparison_of(runs);
    // A run may come from anybody, with a link in the place of its page.
    if (!(output.empty() ? tutti::track::replace_file(page, content) : write_page(page, content))) {
      std::fprintf(stderr, "tutti-report: %s cannot be written: %s; --output names another file\n",
                   page.c_str(), std::strerror(errno));
      return 1;
    }
    if (!quiet) std::printf("\n%s\n", page.c_str());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "tutti-report: %s\n", failure.what());
    return 1;
  }
  return 0;
}
