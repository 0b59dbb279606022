// SPDX-License-Identifier: Apache-2.0
// Ranks forked by the program itself, for libraries without a launcher and for the limits of the machine.
// Coordination (next step, barrier, sums) uses one shared page, so that the measured library runs only in the
// timed part.
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

  // The interface that blocking_program.hpp needs.
  void tell(std::span<std::byte> bytes);
  void barrier();
  void maximum(std::span<double> values);
  void sum(std::span<double> values);

  // Gathers the bytes of every rank (addresses, for example) in the order of the ranks. All ranks give the
  // same number of bytes.
  void gather(std::span<const std::byte> own, std::span<std::byte> all);

  static constexpr int most_ranks = 256;
  static constexpr std::size_t most_bytes = 2048;  // of one tell, or of one rank's part in a gather

 private:
  template <class Combine>
  void combine(std::span<double> values, Combine with);

  control_page* page_;
  int rank_;
};

// Spins until `ready()`, and soon yields the core between the checks.
template <class Ready>
void wait_until(Ready ready);

// Forks `ranks` processes that run `main`, and waits for them. If one fails, ends the others. Returns the
// exit code of rank 0, or of the first rank that failed. The process must have no other thread yet.
int run_forked(int ranks, const std::function<int(forked_world)>& main);

void yield_core() noexcept;

template <class Ready>
void wait_until(Ready ready) {
  for (unsigned looks = 1; !ready(); ++looks)
    if (looks % 2048 == 0) yield_core();
}

}  // namespace perf
