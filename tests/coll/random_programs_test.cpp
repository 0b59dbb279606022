// SPDX-License-Identifier: Apache-2.0
// Random programs: messages and collectives on several communicators, many in flight, started in one order
// and awaited in any, checked against a serial model.
#include "coll/random/performer.hpp"
#include "support/instrumented.hpp"

#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

using kind = coll::operation_kind;

void run(const program& p, std::size_t spoilt = no_step) {
  run_in(p.where,
         [&p, spoilt](communicator world, const setting*) { return perform(std::move(world), &p, spoilt); });
}

}  // namespace

TEST_CASE("random programs: every rank gets the results of the serial model") {
  const bool replays = std::getenv("TUTTI_TEST_SEED") != nullptr;
  const std::uint64_t first = seed_of_this_run();
  const std::uint64_t programs = replays ? 1 : instrumented ? 24 : 240;
  for (std::uint64_t i = 0; i < programs; ++i) {
    const program p = random_program(first + i);
    const std::string replay = p.replay();
    CAPTURE(replay);
    bool good = false;
    CHECK_NOTHROW((run(p), good = true));
    if (!good) break;
  }
}

TEST_CASE("random programs: a single wrong bit is detected") {
  std::size_t messages = 0;
  std::size_t collectives = 0;
  for (std::uint64_t seed = 0; messages + collectives < 6;
       seed += 4) {  // of two ranks: each sees the other fail
    const program p = random_program(seed);
    for (const step& s : p.steps) {
      const bool message = s.what == action::messages && s.letters[0].size > 0 && messages < 3;
      const bool collective =
          s.what == action::collective && s.count > 0 && s.op == fold::sum && collectives < 3 &&
          (s.kind == kind::all_reduce || s.kind == kind::all_gather || s.kind == kind::all_to_all);
      if (!message && !collective) continue;
      ++(message ? messages : collectives);
      const std::string words = p.words(s);
      CAPTURE(words);
      CHECK_THROWS_WITH(run(p, s.number), doctest::Contains(words.c_str()));
      break;
    }
  }
}
