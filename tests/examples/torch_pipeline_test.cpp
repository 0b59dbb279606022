// SPDX-License-Identifier: Apache-2.0
// The transformer of examples/torch has the losses of one process, in two and four stages and on a grid.
#include "support/command.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<double> losses(const std::string& arguments) {
  const tutti::test::command_result run = tutti::test::run_shell(TUTTI_RUN_PATH " " + arguments);
  INFO(run.output);
  CHECK(run.exit_code == 0);
  std::vector<double> found;
  std::istringstream lines(run.output);
  for (std::string line; std::getline(lines, line);) {
    int step = 0;
    double loss = 0;
    if (std::sscanf(line.c_str(), "step %d: loss %lf", &step, &loss) == 2) found.push_back(loss);
  }
  return found;
}

}  // namespace

TEST_CASE("torch: a transformer in stages has the losses of one process") {
  const std::string program = TUTTI_TORCH_PIPELINE_PATH;
  const std::vector<double> alone = losses("-n 1 " + program);
  REQUIRE(alone.size() == 6);
  CHECK(alone.back() < alone.front() - 1);  // it learns
  for (const std::string& ranks : {"-n 2 " + program, "-n 4 " + program, "-n 4 " + program + " --stages 2"}) {
    CAPTURE(ranks);
    const std::vector<double> staged = losses(ranks);
    REQUIRE(staged.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) CHECK(std::abs(staged[i] - alone[i]) < 1e-5);
  }
}
