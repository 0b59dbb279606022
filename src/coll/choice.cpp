// SPDX-License-Identifier: Apache-2.0
#include "coll/choice.hpp"

#include "base/env.hpp"

#include <fmt/format.h>

#include <tutti/error.hpp>

namespace tutti::coll {
namespace {

struct row {
  int ranks;            // at least
  std::size_t bytes;    // at most
  all_reduce_algorithm use;
};

// First fitting row from the top. Measured with perf/ on two cores; see perf/NOTES.md.
constexpr row all_reduce_table[] = {
    {3, 32 * 1024, all_reduce_algorithm::recursive_doubling},
    {0, 64 * 1024, all_reduce_algorithm::recursive_doubling},
    {0, ~std::size_t{0}, all_reduce_algorithm::ring},
};

all_reduce_algorithm from_environment() {
  const auto wanted = base::env_string("TUTTI_ALL_REDUCE");
  if (!wanted || *wanted == "auto") return all_reduce_algorithm{};
  if (*wanted == "recursive_doubling") return all_reduce_algorithm::recursive_doubling;
  if (*wanted == "ring") return all_reduce_algorithm::ring;
  throw error(errc::invalid_argument,
              fmt::format("TUTTI_ALL_REDUCE='{}' is none of auto, recursive_doubling, ring", *wanted));
}

}  // namespace

all_reduce_algorithm choose_all_reduce(std::size_t bytes, int ranks) {
  static const all_reduce_algorithm forced = from_environment();
  if (forced != all_reduce_algorithm{}) return forced;
  for (const row& r : all_reduce_table)
    if (ranks >= r.ranks && bytes <= r.bytes) return r.use;
  return all_reduce_algorithm::ring;
}

}  // namespace tutti::coll
