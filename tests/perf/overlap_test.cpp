// SPDX-License-Identifier: Apache-2.0
#include "common/overlap.hpp"

#include <doctest/doctest.h>
#include <map>

namespace {

perf::options counted(std::int64_t triples) {
  perf::options o;
  o.what = perf::command::overlap;
  o.iterations = triples;
  return o;
}

}  // namespace

TEST_CASE("the communication alone determines the length, then the parts alternate") {
  perf::overlap_series series(counted(3), 1024, perf::computing::device);
  const perf::stopwatch watch;
  std::map<std::int64_t, int> measured;
  const double seconds[] = {0.010, 0.012, 0.014};
  int steps = 0;
  for (;; ++steps) {
    REQUIRE(steps < 100);
    const perf::overlap_step step = series.next();
    if (step.part == perf::part_over) break;
    if (step.measured == 0) {
      CHECK(step.part == perf::part_communication);
    } else {
      CHECK(step.compute_seconds == doctest::Approx(0.010));
      ++measured[step.part];
    }
    series.finished(step, seconds[step.part], watch);
  }
  CHECK(steps == perf::overlap_series::calibrating_steps + 9);
  CHECK(measured[perf::part_communication] == 3);
  CHECK(measured[perf::part_computation] == 3);
  CHECK(measured[perf::part_both] == 3);

  // 3 x 4 ms, 3 x 8 ms, 3 x 15 ms of processor time, of all ranks.
  const perf::overlap_row row = series.row_of({0.012, 0.024, 0.045, 0}, 2);
  CHECK(row.mode == "device");
  CHECK(row.triples == 3);
  CHECK(row.overlap == doctest::Approx(0.8));  // 1 - (14 - 12) / 10
  CHECK(row.comm_cpu_us == doctest::Approx(4000));
  CHECK(row.both_cpu_us == doctest::Approx(15000));
  CHECK(row.bound_us == doctest::Approx(12000));
  CHECK(series.row_of({0.012, 0.024, 0.045, 0}, 1).bound_us == doctest::Approx(12000));
  CHECK(series.row_of({0.036, 0.024, 0.045, 2}, 1).bound_us ==
        doctest::Approx(20000));  // all CPU over the cores
  CHECK(series.row_of({0, 0, 0, 2}, 1).faults == 2);
}

TEST_CASE("computation is proportional to the requested time") {
  const perf::computation work;
  CHECK(work.steps_for(1e-3) > 0);
  CHECK(work.steps_for(2e-3) == doctest::Approx(2 * static_cast<double>(work.steps_for(1e-3))).epsilon(0.01));
  int pieces = 0;
  work.run_in_pieces(1e-3, 1e-4, [&] { ++pieces; });
  CHECK(pieces >= 9);
  CHECK(pieces <= 11);
  CHECK(perf::computation::run(100) != perf::computation::run(10));
}
