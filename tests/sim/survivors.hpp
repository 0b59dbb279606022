// SPDX-License-Identifier: Apache-2.0
// Ranks that continue without the dead, and the invariants of their agreements.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/sim/simulation.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::test {

// The results of shrink() on all ranks of one simulation.
class census {
 public:
  // `me` (a rank of the world) got `made` from its `round`th shrink() of `old`.
  void note(int me, const communicator& old, int round, const communicator& made);
  // `me` leaves in order. A rank without a connection to it cannot distinguish that from a death.
  void leaves(int me) { left_.push_back(me); }
  // Throws std::runtime_error if ranks have one communicator with different members. With `only_deaths`, when
  // links ended only with their ranks, also checks each round: it has one outcome, includes all live ranks,
  // and names the dead ones, unless some also give up. `faults`: as text.
  void check(const sim::report& r, const std::string& faults, bool only_deaths, bool gives_up) const;
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct entry {  // ranks are those of the world
    int rank;
    std::string old;
    int round;
    std::string made;
    std::vector<int> before;
    std::vector<int> members;
    std::vector<int> failed;
    std::vector<int> left;  // by then, of their own accord
  };
  std::vector<entry> entries_;
  std::vector<int> left_;
};

struct survival {
  std::uint64_t seed = 0;
  int sums = 4;           // number of sums of a rank, with any members
  std::size_t count = 1;  // elements of each
  bool meets = false;     // all connect at first
  bool asks = false;      // ranks also call shrink() without a failure
  bool gives_up = false;  // ranks cancel a shrink(), or drop it and leave
};

// Sums among the remaining ranks until enough have succeeded. Throws std::runtime_error if one is wrong, and
// errors that shrink() cannot cure.
task<> survive(communicator world, survival plan, census* all);

// Runs one schedule of it, drawn by the seed. Throws like run_schedule.
void run_survival(std::uint64_t seed);
// The same with a given schedule.
sim::report run_survival(const sim::options& o, const survival& plan, bool only_deaths);

}  // namespace tutti::test
