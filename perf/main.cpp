// SPDX-License-Identifier: Apache-2.0
// tutti-perf: measures and checks messages and collectives.
//   tutti-run -n 2 tutti-perf latency
//   tutti-run -n 4 tutti-perf all_reduce --sizes 4..1MiB --json result.json
#include "common/machine.hpp"
#include "common/options.hpp"
#include "common/series.hpp"
#include "common/session.hpp"
#include "common/startup.hpp"
#include "overlap.hpp"
#include "rounds.hpp"
#include "tune.hpp"

#include <tutti/tutti.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace {

const perf::program_names names{
    .program = "tutti-perf",
    .launcher = "tutti-run",
    .has_shared_memory = true,
    .can_prepare = true,
    .can_reduce_in_place = true,
    .accesses = {"window"},
    .also = "tutti-perf tune writes rules for choosing algorithms: tutti-perf tune --help\n"};

constexpr const char* library = "tutti " TUTTI_PERF_VERSION;

constexpr perf::memory_source shared_memory{
    [](std::size_t bytes) { return tutti::shared_allocator<std::byte>().allocate(bytes); },
    [](std::byte* memory, std::size_t bytes) noexcept {
      tutti::shared_allocator<std::byte>().deallocate(memory, bytes);
    }};

perf::memory_source source_of(const perf::options& chosen) {
  return chosen.where == perf::memory::shared ? shared_memory : perf::ordinary_memory;
}

// Measures one size; see common/series.hpp. `data` outlives the task.
template <class Workload>
tutti::task<perf::row> measure(tutti::communicator world, perf::options chosen, std::size_t bytes,
                               Workload* data) {
  perf::series series(chosen, bytes, data->operations_per_round());
  for (;;) {
    perf::batch b;
    if (world.rank() == 0) b = series.next();
    co_await world.broadcast(b, 0);
    if (b.rounds == 0) break;
    data->prepare(b.seed, chosen.rewrites);
    co_await world.barrier();

    perf::stopwatch watch;
    watch.start();
    bool done = false;
    if constexpr (requires { perf::run_prepared_rounds(world, data, b.rounds); })
      if (done = chosen.prepared; done) co_await perf::run_prepared_rounds(world, data, b.rounds);
    if (!done) co_await perf::run_rounds(world, data, b.rounds);
    watch.stop();

    co_await world.barrier();
    data->check();
    series.watched(b, watch);
    perf::maxima all = perf::own_maxima(*data, watch);
    co_await world.all_reduce(all, tutti::max);
    perf::judge(*data, all);
    series.finished(b, all[perf::max_seconds]);
  }
  perf::totals totals = series.own_totals(data->faults());
  co_await world.all_reduce(totals, tutti::sum);
  co_return series.row_of(totals);
}

tutti::task<perf::row> measure_size(tutti::communicator world, perf::options chosen, std::size_t bytes) {
  const perf::memory_source from = source_of(chosen);
  switch (chosen.what) {
    case perf::command::bandwidth:
    case perf::command::message_rate: {
      perf::message_window data(bytes, perf::window_for(chosen, bytes), world.rank(), from);
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::put_signal: {
      perf::window_pair data(bytes, world.rank(), from);
      data.shown = co_await world.window(data.in(), {.signals = 1});
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::fetch_add: {
      perf::window_count data(world.rank());
      data.shown = co_await world.window(std::span<std::byte>(), {.signals = 1});
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::all_reduce: {
      perf::vector_sum data(bytes, world.rank(), world.size(), from, chosen.in_place);
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::all_gather: {
      perf::gathered_blocks data(bytes, world.rank(), world.size(), from);
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::reduce_scatter: {
      perf::scattered_sum data(bytes, world.rank(), world.size(), from);
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::broadcast: {
      perf::broadcast_message data(bytes, world.rank(), from);
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::all_to_all: {
      perf::exchanged_blocks data(bytes, world.rank(), world.size(), from);
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::barrier: {
      perf::barrier_times data;
      perf::row result = co_await measure(world, chosen, bytes, &data);
      co_return result;
    }
    case perf::command::latency:
    case perf::command::overlap:
    case perf::command::startup:
      break;
  }
  perf::message_pair data(bytes, world.rank(), from);
  perf::row result = co_await measure(world, chosen, bytes, &data);
  co_return result;
}

// The transport, observed from outside after the ranks have connected: all ranks share memory, some do, or
// none.
tutti::task<std::string> transport_of(tutti::communicator world) {
  const char* const backend = std::getenv("TUTTI_BACKEND");
  if (backend != nullptr && std::string_view(backend) == "mpi") co_return "mpi";
  double shares = perf::maps_memory_named("memfd:tutti (") ? 1 : 0;
  co_await world.all_reduce(shares, tutti::sum);
  if (shares == world.size()) co_return "shm";
  const std::vector<tutti::peer_counters> peers = tutti::peer_counters_of(world);
  const bool ucx =
      std::ranges::any_of(peers, [](const tutti::peer_counters& p) { return p.transport == "ucx"; });
  co_return std::string(shares == 0 ? "" : "shm and ") + (ucx ? "ucx" : "tcp");
}

// Runs in a rank that `startup` has launched.
tutti::task<> answer_startup(tutti::communicator world, perf::options chosen) {
  std::int64_t over_ns = perf::host_clock_ns();
  co_await world.all_reduce(over_ns, tutti::max);
  const std::string transport = co_await transport_of(world);
  if (world.rank() == 0) perf::tell_first_barrier(chosen, {over_ns, library, transport});
}

tutti::task<int> measure_all(tutti::communicator world, perf::options chosen) {
  const std::string wrong = perf::wrong_ranks(chosen, world.size(), names);
  if (!wrong.empty()) {
    if (world.rank() != 0)
      co_return 0;  // a failed exit would make the launcher stop rank 0 before it prints the reason
    std::fprintf(stderr, "tutti-perf: %s\n", wrong.c_str());
    co_return 2;
  }
  co_await world.barrier();  // makes the connections
  if (chosen.what == perf::command::startup) {
    co_await answer_startup(world, chosen);
    co_return 0;
  }
  perf::report about;
  about.program = names.program;
  about.library = library;
  about.command = perf::name_of(chosen.what) + std::string(chosen.prepared ? ", prepared" : "");
  about.transport = co_await transport_of(world);
  about.loop = perf::has_descriptor_named("[io_uring]") ? "io_uring" : "epoll";
  about.memory = perf::name_of(chosen.where);
  about.binding = chosen.pin ? "pinned" : "free";
  about.contents = perf::contents_of(chosen);
  about.ranks = world.size();
  about.cores = perf::usable_cores();
  about.machine = perf::machine_text();

  perf::session session(chosen, about, world.rank());
  for (const std::size_t wished : chosen.sizes) {
    const std::size_t bytes = perf::usable_size(chosen.what, wished, world.size());
    if (chosen.what != perf::command::overlap) {
      perf::row done = co_await measure_size(world, chosen, bytes);
      session.add(std::move(done));
      continue;
    }
    for (const perf::computing mode : chosen.modes) {
      perf::overlap_row done = co_await perf::measure_overlap(world, chosen, bytes, mode, source_of(chosen));
      session.add(std::move(done));
    }
  }
  co_return session.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "tune") return perf::tune(argc - 1, argv + 1);
  const std::variant<perf::options, int> said = perf::parse_command_line(argc, argv, names);
  if (const int* code = std::get_if<int>(&said)) return *code;
  const perf::options& chosen = std::get<perf::options>(said);
  if (chosen.what == perf::command::startup && chosen.launched_ns == 0)
    return perf::measure_startup(chosen, names);
  if (chosen.pin) perf::pin_to_core(perf::launched_rank());
  return tutti::run([&](tutti::communicator world) { return measure_all(std::move(world), chosen); });
}
