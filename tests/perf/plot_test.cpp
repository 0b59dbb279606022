// SPDX-License-Identifier: Apache-2.0
#include "common/plot.hpp"

#include <doctest/doctest.h>
#include <string>
#include <vector>

namespace {

perf::launch launched(const char* peer, std::vector<std::size_t> sizes, double us_per_byte,
                      double line_ns = 50) {
  perf::report r;
  r.command = "latency";
  r.transport = "shm";
  r.ranks = r.cores = 2;
  for (const std::size_t bytes : sizes) {
    perf::row row;
    row.bytes = bytes;
    row.median_us = us_per_byte * static_cast<double>(bytes);
    row.line_before_ns = row.line_after_ns = line_ns;
    r.rows.push_back(row);
  }
  return {peer, r};
}

}  // namespace

TEST_CASE("curves show the placement with most measurements, by size, with their spread") {
  const perf::benchmark of{"latency.2.shm",
                           {launched("tutti", {64, 8}, 1), launched("limit", {8, 64}, 0.5),
                            launched("tutti", {64, 8}, 3), launched("tutti", {8}, 100, 240)}};
  CHECK(perf::main_place(of) == 'C');
  const auto curves = perf::curves_of(of);
  REQUIRE(curves.size() == 2);
  CHECK(curves[0].peer == "tutti");
  REQUIRE(curves[0].points.size() == 2);
  CHECK(curves[0].points[0].bytes == 8);
  CHECK(curves[0].points[0].us == doctest::Approx(16));
  CHECK(curves[0].points[0].least_us == doctest::Approx(8));
  CHECK(curves[0].points[0].most_us == doctest::Approx(24));
  CHECK(curves[1].peer == "limit");
}

TEST_CASE("a peer without launches in that placement has no curve; unknown placements count as one") {
  const auto one_place = perf::curves_of({"x", {launched("tutti", {8, 64}, 1), launched("a", {8}, 1, 240)}});
  CHECK(one_place.size() == 1);
  const auto unknown = perf::curves_of({"x", {launched("tutti", {8, 64}, 1, 0), launched("a", {8}, 1, 0)}});
  CHECK(unknown.size() == 2);
}

TEST_CASE("the script has the data, the file and both pictures; one size gives no script") {
  const std::string script =
      perf::gnuplot_script({"x", {launched("tutti", {8, 64}, 1), launched("openmpi", {8, 64}, 2)}}, "x.svg");
  CHECK(script.find("set output 'x.svg'") != script.npos);
  CHECK(script.find("$data0 << end\n8 8 8 8\n64 64 64 64\nend\n") != script.npos);
  CHECK(script.find("title 'openmpi'") != script.npos);
  CHECK(script.find("1:($1/$2/1000)") != script.npos);
  CHECK(perf::gnuplot_script({"x", {launched("tutti", {8}, 1)}}, "x.svg").empty());
}
