// SPDX-License-Identifier: Apache-2.0
// Ranks that go on without the dead, and what has to be true of what they have agreed on.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/communicator.hpp>
#include <tutti/sim/simulation.hpp>
#include <tutti/task.hpp>
#include <vector>

namespace tutti::test {

// What shrink() has given to whom, of all ranks of one simulation.
class census {
 public:
  // `me` (a rank of the world) has got `made` from its `round`th shrink() of `old`.
  void note(int me, const communicator& old, int round, const communicator& made);
  // `me` ends, and leaves in order: who never had a connection to it cannot tell that from a death.
  void leaves(int me) { left_.push_back(me); }
  // Throws std::runtime_error unless all that have the same communicator have it with the same members. With
  // `only_deaths`, when no link has ended otherwise than with a rank: also unless each round has had one
  // outcome, by which all that have not died go on, and has named those that have. `faults`: in words.
  void check(const sim::report& r, const std::string& faults, bool only_deaths) const;
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
  };
  std::vector<entry> entries_;
  std::vector<int> left_;
};

struct survival {
  std::uint64_t seed = 0;
  int sums = 4;           // that a rank wants to see, in whatever company
  std::size_t count = 1;  // elements of each
  bool meets = false;     // all exchange something at first
  bool asks = false;      // ranks call shrink() although nothing has failed, too
  bool gives_up = false;  // ranks give up a shrink(), or drop it and leave
};

// Sums among those that are left, until enough have succeeded. Throws std::runtime_error when one is wrong,
// and what an operation throws that cannot be mended by shrink().
task<> survive(communicator world, survival plan, census* all);

// One schedule of it, drawn by the seed. Throws as run_schedule does.
void run_survival(std::uint64_t seed);
// The same of a given one.
sim::report run_survival(const sim::options& o, const survival& plan, bool only_deaths);

}  // namespace tutti::test
