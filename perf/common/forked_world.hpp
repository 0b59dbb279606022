// SPDX-License-Identifier: Apache-2.0
// Ranks that a program forks itself, for libraries that have no launcher and for the limits of the machine:
// what belongs to the method (who measures what next, the barrier before it, the sums after it) goes through
// one shared page, so that the library under test is only in the timed part.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace perf {

class control_page;

class forked_world {
 public:
  forked_world(control_page* page, int rank) noexcept : page_(page), rank_(rank) {}

  int rank() const noexcept { return rank_; }
  int size() const noexcept;

  // As blocking_program.hpp has them.
  void tell(std::span<std::byte> bytes);
  void barrier();
  void maximum(std::span<double> values);
  void sum(std::span<double> values);

  // Every rank's bytes, as many as rank 0 has, one behind the other in the order of the ranks: addresses and
  // the like.
  void gather(std::span<const std::byte> own, std::span<std::byte> all);

  static constexpr int most_ranks = 256;
  static constexpr std::size_t most_bytes = 2048;  // of one tell, or of one rank's part of a gather

 private:
  template <class Combine>
  void combine(std::span<double> values, Combine with);

  control_page* page_;
  int rank_;
};

// Spins, then gives the core to whoever needs it, until `ready()`.
template <class Ready>
void wait_until(Ready ready);

// Forks `ranks` processes that run `main`, and waits for them; the first that fails ends the others. The exit
// code of rank 0, or of the first that failed. Nothing in this process may have made a thread yet.
int run_forked(int ranks, const std::function<int(forked_world)>& main);

void yield_core() noexcept;

template <class Ready>
void wait_until(Ready ready) {
  for (unsigned looks = 1; !ready(); ++looks)
    if (looks % 2048 == 0) yield_core();
}

}  // namespace perf
