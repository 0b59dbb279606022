// SPDX-License-Identifier: Apache-2.0
// common/blocking_program.hpp has the same steps for rivals: change both together.
#include "overlap.hpp"

#include "common/collective_workload.hpp"
#include "common/machine.hpp"
#include "common/overlap.hpp"
#include "common/workload.hpp"

#include <boost/asio/deferred.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>

namespace perf {
namespace {

tutti::task<> compute_meanwhile(tutti::communicator world, const computation* work, computing mode,
                                double seconds) {
  if (mode == computing::device) {
    boost::asio::steady_timer timer(
        world.get_executor(),
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
    co_await timer.async_wait(boost::asio::deferred);
  } else if (mode == computing::all || world.rank() == 0) {
    const auto arithmetic = [steps = work->steps_for(seconds)] { return computation::run(steps); };
    co_await tutti::compute(arithmetic);
  }
}

}  // namespace

tutti::task<overlap_row> measure_overlap(tutti::communicator world, options chosen, std::size_t bytes,
                                         computing mode, memory_source from) {
  vector_sum data(bytes, world.rank(), world.size(), from);
  const computation work;
  overlap_series series(chosen, bytes, mode);
  for (;;) {
    overlap_step step;
    if (world.rank() == 0) step = series.next();
    co_await world.broadcast(step, 0);
    if (step.part == part_over) break;
    data.prepare(step.seed);
    co_await world.barrier();

    stopwatch watch;
    watch.start();
    tutti::request summing;
    if (step.part != part_computation)
      summing = tutti::start(world.all_reduce(data.in(), data.out(), tutti::sum));
    if (step.part != part_communication) co_await compute_meanwhile(world, &work, mode, step.compute_seconds);
    if (step.part != part_computation) co_await summing;
    watch.stop();

    co_await world.barrier();
    if (step.part != part_computation) data.check();
    maxima all = own_maxima(data, watch);
    co_await world.all_reduce(all, tutti::max);
    series.finished(step, all[max_seconds], watch);
  }
  overlap_totals sums = series.own_totals(data.faults());
  co_await world.all_reduce(sums, tutti::sum);
  co_return series.row_of(sums, usable_cores());
}

}  // namespace perf
