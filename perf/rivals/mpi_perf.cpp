// SPDX-License-Identifier: Apache-2.0
// mpi-perf: tutti-perf with MPI in the place of tutti. The same method, buffers, checks and output, and the
// loops of rounds.cpp call by call: change both.
//   mpirun -n 2 mpi-perf latency
#include "common/machine.hpp"
#include "common/options.hpp"
#include "common/series.hpp"
#include "common/session.hpp"
#include "common/workload.hpp"

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace {

const perf::program_names names{"mpi-perf", "mpirun"};

struct world {
  int rank = 0, size = 0;
};

int count_of(std::size_t elements) { return static_cast<int>(elements); }  // perf::most_size_bytes fits

// MPI ends the program by itself when a call fails: MPI_ERRORS_ARE_FATAL.
void send(std::span<const std::byte> data, int dest) {
  MPI_Send(data.data(), count_of(data.size()), MPI_BYTE, dest, 0, MPI_COMM_WORLD);
}
void receive(std::span<std::byte> data, int source) {
  MPI_Recv(data.data(), count_of(data.size()), MPI_BYTE, source, MPI_ANY_TAG, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
}

void run_rounds(const world& w, perf::message_pair* data, std::int64_t rounds) {
  const bool first = w.rank == 0;
  const int peer = 1 - w.rank;
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (first) send(data->out(), peer);
    receive(data->in(), peer);
    data->sample();
    if (!first) send(data->out(), peer);
  }
}

void send_windows(perf::message_window* data, std::int64_t rounds) {
  std::vector<MPI_Request> sending(static_cast<std::size_t>(data->slots()));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < data->slots(); ++i)
      MPI_Isend(data->slot(i).data(), count_of(data->slot(i).size()), MPI_BYTE, 1, 0, MPI_COMM_WORLD,
                &sending[static_cast<std::size_t>(i)]);
    MPI_Waitall(data->slots(), sending.data(), MPI_STATUSES_IGNORE);
    std::int64_t arrived = -1;
    MPI_Recv(&arrived, 1, MPI_INT64_T, 1, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    data->sample_answer(arrived, round);
  }
}

void receive_windows(perf::message_window* data, std::int64_t rounds) {
  std::vector<MPI_Request> receiving(static_cast<std::size_t>(data->slots()));
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < data->slots(); ++i)
      MPI_Irecv(data->slot(i).data(), count_of(data->slot(i).size()), MPI_BYTE, 0, MPI_ANY_TAG,
                MPI_COMM_WORLD, &receiving[static_cast<std::size_t>(i)]);
    MPI_Waitall(data->slots(), receiving.data(), MPI_STATUSES_IGNORE);
    data->sample();
    MPI_Send(&round, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD);
  }
}

void run_rounds(const world& w, perf::message_window* data, std::int64_t rounds) {
  if (w.rank == 0)
    send_windows(data, rounds);
  else
    receive_windows(data, rounds);
}

void run_rounds(const world&, perf::vector_sum* data, std::int64_t rounds) {
  for (std::int64_t round = 0; round < rounds; ++round) {
    MPI_Allreduce(data->in().data(), data->out().data(), count_of(data->out().size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    data->sample();
  }
}

// Rank 0 may be looking at the placement, for which the others have to keep off the cores: they wait without
// spinning.
void receive_batch(perf::batch& b) {
  MPI_Request receiving;
  MPI_Ibcast(&b, sizeof b, MPI_BYTE, 0, MPI_COMM_WORLD, &receiving);
  for (int arrived = 0;;) {
    MPI_Test(&receiving, &arrived, MPI_STATUS_IGNORE);
    if (arrived != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// One size; the method is in common/series.hpp.
template <class Workload>
perf::row measure(const world& w, const perf::options& chosen, std::size_t bytes, Workload data) {
  perf::series series(chosen, bytes, data.operations_per_round());
  for (;;) {
    perf::batch b;
    if (w.rank == 0) b = series.next();
    receive_batch(b);
    if (b.rounds == 0) break;
    data.prepare(b.seed);
    MPI_Barrier(MPI_COMM_WORLD);

    perf::stopwatch watch;
    watch.start();
    run_rounds(w, &data, b.rounds);
    watch.stop();

    data.check();
    series.watched(b, watch);
    double seconds = data.keeps_time() ? watch.seconds() : 0;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    series.finished(b, seconds);
  }
  perf::totals totals = series.own_totals(data.faults());
  MPI_Allreduce(MPI_IN_PLACE, totals.data(), count_of(totals.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return series.row_of(totals);
}

perf::row measure_size(const world& w, const perf::options& chosen, std::size_t bytes) {
  switch (chosen.what) {
    case perf::command::bandwidth:
      return measure(w, chosen, bytes, perf::message_window(bytes, perf::window_for(chosen, bytes), w.rank));
    case perf::command::all_reduce:
      return measure(w, chosen, bytes, perf::vector_sum(bytes, w.rank, w.size));
    case perf::command::latency:
      break;
  }
  return measure(w, chosen, bytes, perf::message_pair(bytes, w.rank));
}

// "Open MPI v4.1.4" of a text that goes on with who built it.
std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

// Seen from outside: the names under which Open MPI and MPICH share memory between processes.
std::string transport_of(const world& w) {
  double shares =
      perf::maps_memory_named("vader_segment") || perf::maps_memory_named("/dev/shm/mpich") ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &shares, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (shares == 0) return "tcp";
  return shares == w.size ? "shm" : "shm and tcp";
}

int measure_all(const world& w, const perf::options& chosen) {
  const std::string wrong = perf::wrong_ranks(chosen, w.size, names);
  if (!wrong.empty()) {
    if (w.rank != 0) return 0;
    std::fprintf(stderr, "mpi-perf: %s\n", wrong.c_str());
    return 2;
  }
  perf::report about;
  about.program = names.program;
  about.library = library_name();
  about.command = perf::name_of(chosen.what);
  MPI_Barrier(MPI_COMM_WORLD);  // connects
  about.transport = transport_of(w);
  about.ranks = w.size;
  about.cores = perf::usable_cores();
  about.machine = perf::machine_text();

  perf::session session(chosen, about, w.rank);
  for (const std::size_t bytes : chosen.sizes) session.add(measure_size(w, chosen, bytes));
  return session.finish();
}

}  // namespace

int main(int argc, char** argv) {
  const std::variant<perf::options, int> said = perf::parse_command_line(argc, argv, names);
  if (const int* code = std::get_if<int>(&said)) return *code;
  MPI_Init(&argc, &argv);
  world w;
  MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w.size);
  int code = 1;
  try {
    code = measure_all(w, std::get<perf::options>(said));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "mpi-perf: rank %d: %s\n", w.rank, failure.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
