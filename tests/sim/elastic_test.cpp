// SPDX-License-Identifier: Apache-2.0
// Many schedules of worlds that grow and shrink: nodes join early or late, die, are drained and cut off.
// TUTTI_SIM_SCHEDULES: number of schedules; TUTTI_SIM_SEED: only this one.
#include "sim/elastic_job.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>
#include <cstdlib>
#include <tutti/sim/simulation.hpp>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("simulator: worlds that grow and shrink") {
  const char* const wanted = std::getenv("TUTTI_SIM_SCHEDULES");
  const std::uint64_t schedules = wanted != nullptr ? std::strtoull(wanted, nullptr, 0)
                                  : instrumented    ? 200
                                                    : 3'000;
  elastic_census all;
  CHECK_NOTHROW(sim::explore(1, schedules, [&all](std::uint64_t seed) { run_elastic_job(seed, &all); }));
  MESSAGE(all.worlds << " worlds, " << all.steps << " steps, " << all.finished << " jobs finished, "
                     << all.minorities << " ranks without a quorum, " << all.held_back << " worlds anew");
  if (schedules < 200 || std::getenv("TUTTI_SIM_SEED") != nullptr) return;
  CHECK(all.worlds > static_cast<int>(2 * schedules));
  CHECK(all.finished > static_cast<int>(schedules / 2));
  CHECK(all.minorities > 0);
  CHECK(all.held_back > 0);
}
