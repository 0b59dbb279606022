// SPDX-License-Identifier: Apache-2.0
// Many schedules, half of them with faults: no rank waits for ever, and no wrong result counts as success.
// TUTTI_SIM_SCHEDULES: number of schedules (./run test --long: 10,000); TUTTI_SIM_SEED: only this one.
#include "sim/scenarios.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>
#include <cstdlib>

using namespace tutti;
using namespace tutti::test;

TEST_CASE("simulator: schedules") {
  const char* const wanted = std::getenv("TUTTI_SIM_SCHEDULES");
  const std::uint64_t schedules = wanted != nullptr ? std::strtoull(wanted, nullptr, 0)
                                  : instrumented    ? 500
                                                    : 2'500;
  CHECK_NOTHROW(sim::explore(1, schedules, run_schedule));
}
