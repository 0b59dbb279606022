// SPDX-License-Identifier: Apache-2.0
// tutti-report RUN: what its ranks have left, as one page and in a few lines.
#include "report/page.hpp"
#include "train/run_directory.hpp"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  std::string directory, output;
  bool quiet = false;
  CLI::App app(
      "Reads a run of tutti's tracking, finished or not, and writes one HTML page that needs no network.",
      "tutti-report");
  app.add_option("RUN", directory, "directory of the run, such as runs/2026-01-31_23-59-59")->required();
  app.add_option("-o,--output", output, "the page (default: report.html in the run)")->type_name("FILE");
  app.add_flag("-q,--quiet", quiet, "no summary on standard output");
  CLI11_PARSE(app, argc, argv);
  try {
    const tutti::report::run_data run = tutti::report::read_run(directory);
    const std::filesystem::path page =
        output.empty() ? std::filesystem::path(directory) / "report.html" : std::filesystem::path(output);
    if (!quiet) std::fputs(tutti::report::summary_of(run).c_str(), stdout);
    if (!tutti::train::replace_file(page, tutti::report::page_of(run))) {
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
