// SPDX-License-Identifier: Apache-2.0
// The measurement method for libraries whose calls block: all of a rival's program except the timed loops.
// main.cpp has the same steps with co_await; change both together.
//
// A World is one rank of such a program:
//   int rank(), size()
//   void tell(std::span<std::byte>)            sends rank 0's bytes to all; the others wait without a core,
//                                              because rank 0 may be measuring the placement
//   void barrier()
//   void maximum(std::span<double>), sum(...)  over all ranks, on all ranks
//   std::string library(), transport()
//   void run_rounds(Workload*, std::int64_t)   the timed part, for each workload that the library supports
//   overlap also needs void start_sum(vector_sum*), finish_sum(), and test_sum() if the library can poll
#pragma once

#include "common/collective_workload.hpp"
#include "common/machine.hpp"
#include "common/options.hpp"
#include "common/overlap.hpp"
#include "common/series.hpp"
#include "common/session.hpp"
#include "common/startup.hpp"
#include "common/workload.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace perf {

// Measures one size; see common/series.hpp.
template <class World, class Workload>
row measure_blocking(World& world, const options& chosen, std::size_t bytes, Workload data) {
  series all_batches(chosen, bytes, data.operations_per_round());
  if constexpr (requires { world.open(&data); }) world.open(&data);
  for (;;) {
    batch b;
    if (world.rank() == 0) b = all_batches.next();
    world.tell(std::as_writable_bytes(std::span(&b, 1)));
    if (b.rounds == 0) break;
    data.prepare(b.seed, chosen.rewrites);
    world.barrier();

    stopwatch watch;
    watch.start();
    world.run_rounds(&data, b.rounds);
    watch.stop();

    world.barrier();
    data.check();
    all_batches.watched(b, watch);
    maxima all = own_maxima(data, watch);
    world.maximum(all);
    judge(data, all);
    all_batches.finished(b, all[max_seconds]);
  }
  totals sums = all_batches.own_totals(data.faults());
  world.sum(sums);
  if constexpr (requires { world.open(&data); }) world.close();
  return all_batches.row_of(sums);
}

template <class World>
void compute_blocking(World& world, const computation& work, computing mode, double seconds) {
  if (mode == computing::device) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  } else if (mode == computing::polled) {
    if constexpr (requires { world.test_sum(); })
      work.run_in_pieces(seconds, 50e-6, [&] { world.test_sum(); });
  } else if (mode == computing::all || world.rank() == 0) {
    computation::run(work.steps_for(seconds));
  }
}

// See common/overlap.hpp for the method.
template <class World>
overlap_row overlap_blocking(World& world, const options& chosen, std::size_t bytes, computing mode) {
  vector_sum data(bytes, world.rank(), world.size());
  const computation work;
  overlap_series series(chosen, bytes, mode);
  for (;;) {
    overlap_step step;
    if (world.rank() == 0) step = series.next();
    world.tell(std::as_writable_bytes(std::span(&step, 1)));
    if (step.part == part_over) break;
    data.prepare(step.seed);
    world.barrier();

    stopwatch watch;
    watch.start();
    if (step.part != part_computation) world.start_sum(&data);
    if (step.part != part_communication) compute_blocking(world, work, mode, step.compute_seconds);
    if (step.part != part_computation) world.finish_sum();
    watch.stop();

    world.barrier();
    if (step.part != part_computation) data.check();
    maxima all = own_maxima(data, watch);
    world.maximum(all);
    series.finished(step, all[max_seconds], watch);
  }
  overlap_totals sums = series.own_totals(data.faults());
  world.sum(sums);
  return series.row_of(sums, usable_cores());
}

// Runs the command. The command line accepts only commands that the World has loops for.
template <class World>
row measure_size_blocking(World& world, const options& chosen, std::size_t bytes, const memory_source& from) {
  const int rank = world.rank(), size = world.size();
  const auto measured = [&](auto data) -> row {
    if constexpr (requires { world.run_rounds(&data, std::int64_t{}); })
      return measure_blocking(world, chosen, bytes, std::move(data));
    else
      throw std::logic_error("a command without a loop");
  };
  switch (chosen.what) {
    case command::bandwidth:
    case command::message_rate:
      return measured(message_window(bytes, window_for(chosen, bytes), rank, from));
    case command::put_signal:
      return measured(put_pair(bytes, rank, from));
    case command::fetch_add:
      return measured(remote_count(rank));
    case command::all_reduce:
      return measured(vector_sum(bytes, rank, size, from, chosen.in_place));
    case command::all_gather:
      return measured(gathered_blocks(bytes, rank, size, from));
    case command::reduce_scatter:
      return measured(scattered_sum(bytes, rank, size, from));
    case command::broadcast:
      return measured(broadcast_message(bytes, rank, from));
    case command::all_to_all:
      return measured(exchanged_blocks(bytes, rank, size, from));
    case command::barrier:
      return measured(barrier_times());
    case command::latency:
    case command::overlap:
    case command::startup:
      break;
  }
  return measured(message_pair(bytes, rank, from));
}

// Returns this rank's exit code. `world` has just been initialised.
template <class World>
int measure_all_blocking(World& world, const options& chosen, const program_names& names,
                         const memory_source& from = ordinary_memory) {
  const std::string wrong = wrong_ranks(chosen, world.size(), names);
  if (!wrong.empty()) {
    if (world.rank() != 0) return 0;
    std::fprintf(stderr, "%s: %s\n", names.program.c_str(), wrong.c_str());
    return 2;
  }
  world.barrier();  // makes the connections
  if (chosen.what == command::startup) {
    double over_ns = static_cast<double>(host_clock_ns() - chosen.launched_ns);
    world.maximum(std::span(&over_ns, 1));
    const std::string transport = world.transport();
    if (world.rank() == 0)
      tell_first_barrier(
          chosen, {chosen.launched_ns + static_cast<std::int64_t>(over_ns), world.library(), transport});
    return 0;
  }
  report about;
  about.program = names.program;
  about.library = world.library();
  about.command = name_of(chosen.what);
  about.transport = world.transport();
  about.memory = name_of(chosen.where);
  about.binding = chosen.pin ? "pinned" : "free";
  about.contents = contents_of(chosen);
  about.ranks = world.size();
  about.cores = usable_cores();
  about.machine = machine_text();

  session out(chosen, about, world.rank());
  for (const std::size_t wished : chosen.sizes) {
    const std::size_t bytes = usable_size(chosen.what, wished, world.size());
    if (chosen.what != command::overlap) {
      out.add(measure_size_blocking(world, chosen, bytes, from));
      continue;
    }
    if constexpr (requires(vector_sum* data) { world.start_sum(data); })
      for (const computing mode : chosen.modes) out.add(overlap_blocking(world, chosen, bytes, mode));
  }
  return out.finish();
}

}  // namespace perf
