// SPDX-License-Identifier: Apache-2.0
// openmpi-perf, mpich-perf, impi-perf: tutti-perf with MPI. Method, buffers, checks and output are the same,
// and the loops equal those of rounds.cpp: change both together.
//   mpirun.openmpi -n 2 openmpi-perf latency
#include "common/blocking_program.hpp"

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace {

const perf::program_names names{.program = TUTTI_PERF_PROGRAM,
                                .launcher = TUTTI_PERF_LAUNCHER,
                                .can_poll = true,
                                .can_reduce_in_place = true};

int count_of(std::size_t elements) { return static_cast<int>(elements); }  // perf::most_size_bytes fits

// A failed MPI call ends the program: MPI_ERRORS_ARE_FATAL.
void send(std::span<const std::byte> data, int dest) {
  MPI_Send(data.data(), count_of(data.size()), MPI_BYTE, dest, 0, MPI_COMM_WORLD);
}
void receive(std::span<std::byte> data, int source) {
  MPI_Recv(data.data(), count_of(data.size()), MPI_BYTE, source, MPI_ANY_TAG, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
}

class mpi_world {
 public:
  mpi_world() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  void tell(std::span<std::byte> bytes) {
    MPI_Request telling;
    MPI_Ibcast(bytes.data(), count_of(bytes.size()), MPI_BYTE, 0, MPI_COMM_WORLD, &telling);
    for (int told = 0;;) {
      MPI_Test(&telling, &told, MPI_STATUS_IGNORE);
      if (told != 0) return;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  void maximum(std::span<double> values) { combine(values, MPI_MAX); }
  void sum(std::span<double> values) { combine(values, MPI_SUM); }

  // "Open MPI v4.1.4" from a text that continues with the builder; "MPICH 4.0.2" from "MPICH
  // Version:\t4.0.2"; "Intel MPI 2021.19.0" from "Intel(R) MPI Library 2021.19.0 for Linux* OS".
  std::string library() const {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string all(text, static_cast<std::size_t>(length));
    all = all.substr(0, all.find_first_of(",\n"));
    const std::string intel = "Intel(R) MPI Library ";
    if (all.rfind(intel, 0) == 0)
      return "Intel MPI " + all.substr(intel.size(), all.find(' ', intel.size()) - intel.size());
    const std::string label = " Version:";
    const std::size_t at = all.find(label);
    if (at == std::string::npos) return all;
    const std::size_t number = all.find_first_not_of(" \t", at + label.size());
    return all.substr(0, at) + " " + (number == std::string::npos ? "" : all.substr(number));
  }

  // Observed from outside: the file names of memory shared by Open MPI 4 and 5, Intel MPI, MPICH and its UCX.
  // MPICH 5 maps its own file even over TCP, so for it the files of its UCX count.
  std::string transport() {
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 50000000
    constexpr const char* mpich = "ucx_shm";
#else
    constexpr const char* mpich = "/dev/shm/mpich";
#endif
    double shares = 0;
    for (const char* name :
         {"vader_segment", "sm_segment", "Intel_MPI", mpich, "ucx_shm_posix", "/SYSV", "/dev/shm/ucx"})
      if (perf::maps_memory_named(name)) shares = 1;
    MPI_Allreduce(MPI_IN_PLACE, &shares, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (shares == 0) return "tcp";
    return shares == size_ ? "shm" : "shm and tcp";
  }

  void run_rounds(perf::message_pair* data, std::int64_t rounds) {
    const bool first = data->begins();
    const int peer = data->peer();
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (first) send(data->out(), peer);
      receive(data->in(), peer);
      data->sample();
      if (!first) send(data->out(), peer);
    }
  }

  void run_rounds(perf::message_window* data, std::int64_t rounds) {
    if (rank_ == 0)
      send_windows(data, rounds);
    else
      receive_windows(data, rounds);
  }

  void run_rounds(perf::vector_sum* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      data->load();
      MPI_Allreduce(data->in_place() ? MPI_IN_PLACE : data->in().data(), data->out().data(),
                    count_of(data->out().size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      data->sample();
    }
  }

  void run_rounds(perf::gathered_blocks* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      const int count = count_of(data->in().size());
      MPI_Allgather(data->in().data(), count, MPI_BYTE, data->out().data(), count, MPI_BYTE, MPI_COMM_WORLD);
      data->sample();
    }
  }

  void run_rounds(perf::scattered_sum* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      MPI_Reduce_scatter_block(data->in().data(), data->out().data(), count_of(data->out().size()), MPI_FLOAT,
                               MPI_SUM, MPI_COMM_WORLD);
      data->sample();
    }
  }

  void run_rounds(perf::broadcast_message* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      MPI_Bcast(data->data().data(), count_of(data->data().size()), MPI_BYTE, 0, MPI_COMM_WORLD);
      data->sample();
    }
  }

  void run_rounds(perf::exchanged_blocks* data, std::int64_t rounds) {
    const int count = count_of(data->in().size()) / size_;
    for (std::int64_t round = 0; round < rounds; ++round) {
      MPI_Alltoall(data->in().data(), count, MPI_BYTE, data->out().data(), count, MPI_BYTE, MPI_COMM_WORLD);
      data->sample();
    }
  }

  void run_rounds(perf::barrier_times* data, std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (round == rounds - 1) data->enter();
      MPI_Barrier(MPI_COMM_WORLD);
    }
    data->leave();
  }

  void start_sum(perf::vector_sum* data) {
    MPI_Iallreduce(data->in().data(), data->out().data(), count_of(data->out().size()), MPI_FLOAT, MPI_SUM,
                   MPI_COMM_WORLD, &summing_);
  }
  void finish_sum() { MPI_Wait(&summing_, MPI_STATUS_IGNORE); }
  bool test_sum() {
    int over = 0;
    MPI_Test(&summing_, &over, MPI_STATUS_IGNORE);
    return over != 0;
  }

 private:
  static void combine(std::span<double> values, MPI_Op op) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), count_of(values.size()), MPI_DOUBLE, op, MPI_COMM_WORLD);
  }

  static void send_windows(perf::message_window* data, std::int64_t rounds) {
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

  static void receive_windows(perf::message_window* data, std::int64_t rounds) {
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

  int rank_ = 0, size_ = 0;
  MPI_Request summing_ = MPI_REQUEST_NULL;  // MPI_Test and MPI_Wait of MPI_REQUEST_NULL complete at once
};

}  // namespace

int main(int argc, char** argv) {
  const std::variant<perf::options, int> said = perf::parse_command_line(argc, argv, names);
  if (const int* code = std::get_if<int>(&said)) return *code;
  const perf::options& chosen = std::get<perf::options>(said);
  if (chosen.what == perf::command::startup && chosen.launched_ns == 0)
    return perf::measure_startup(chosen, names);
  if (chosen.pin) perf::pin_to_core(perf::launched_rank());
  MPI_Init(&argc, &argv);
  mpi_world world;
  int code = 1;
  try {
    code = perf::measure_all_blocking(world, chosen, names);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: rank %d: %s\n", names.program.c_str(), world.rank(), failure.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
