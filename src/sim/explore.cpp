// SPDX-License-Identifier: Apache-2.0
// One scenario under many seeds, and one seed again.
#include "base/env.hpp"
#include "base/log.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <tutti/error.hpp>
#include <tutti/sim/simulation.hpp>

namespace tutti::sim {
namespace {

const char* const variable = "TUTTI_SIM_SEED";

std::optional<std::uint64_t> wanted_seed() {
  const auto given = base::env_integer(variable, 0, std::numeric_limits<std::int64_t>::max());
  if (!given) return std::nullopt;
  return static_cast<std::uint64_t>(*given);
}

}  // namespace

options::options() : seed(wanted_seed().value_or(1)) {}

void explore(std::uint64_t first, std::uint64_t count, const std::function<void(std::uint64_t)>& scenario) {
  if (const auto only = wanted_seed()) {
    scenario(*only);
    return;
  }
  constexpr std::uint64_t last = std::numeric_limits<std::int64_t>::max();
  if (first > last || count > last - first + 1)
    throw error(errc::invalid_argument,
                fmt::format("explore: seeds end at {}, the last one that {} takes", last, variable));
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    try {
      scenario(seed);
    } catch (const std::exception& e) {
      base::log_error(fmt::format("simulation failed with seed {}; to run it again: {}={}\n{}", seed,
                                  variable, seed, e.what()));
      throw;
    }
  }
}

}  // namespace tutti::sim
