// SPDX-License-Identifier: Apache-2.0
// openmpi-perf, mpich-perf, impi-perf: tutti-perf with MPI. Method, buffers, checks and output are the same,
// and the loops equal those of rounds.cpp: change both together.
//   mpirun.openmpi -n 2 openmpi-perf latency
#include "common/blocking_program.hpp"

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace {

const perf::program_names names{.program = TUTTI_PERF_PROGRAM,
                                .launcher = TUTTI_PERF_LAUNCHER,
                                .can_poll = true,
                                .can_reduce_in_place = true,
                                .accesses = {"put", "store"}};

int count_of(std::size_t elements) { return static_cast<int>(elements); }  // perf::most_size_bytes fits

// A failed MPI call ends the program: MPI_ERRORS_ARE_FATAL.
void send(std::span<const std::byte> data, int dest) {
  MPI_Send(data.data(), count_of(data.size()), MPI_BYTE, dest, 0, MPI_COMM_WORLD);
}
void receive(std::span<std::byte> data, int source) {
  MPI_Recv(data.data(), count_of(data.size()), MPI_BYTE, source, MPI_ANY_TAG, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
}

// Some installations of MPICH take ranks of one host for ranks of several.
void end_unless_memory_is_shared() {
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int sharing = 0, ranks = 0;
  MPI_Comm_size(host, &sharing);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_free(&host);
  if (sharing == ranks) return;
  std::puts("SKIPPED: this MPI shares no memory between these ranks");
  MPI_Finalize();
  std::exit(77);
}

// Memory that ranks share, and the window that each piece of it is.
std::map<const void*, MPI_Win>& shared_windows() {
  static std::map<const void*, MPI_Win> all;
  return all;
}
std::byte* allocate_shared(std::size_t bytes) {
  end_unless_memory_is_shared();
  MPI_Info apart;
  MPI_Info_create(&apart);
  MPI_Info_set(apart, "alloc_shared_noncontig", "true");
  void* memory = nullptr;
  MPI_Win made;
  MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, apart, MPI_COMM_WORLD, &memory, &made);
  MPI_Info_free(&apart);
  shared_windows()[memory] = made;
  return static_cast<std::byte*>(memory);
}
void free_shared(std::byte* memory, std::size_t) noexcept {
  const auto found = shared_windows().find(memory);
  MPI_Win_free(&found->second);
  shared_windows().erase(found);
}
constexpr perf::memory_source shared_memory{allocate_shared, free_shared};

// Of another rank, in shared memory.
std::byte* memory_of(int rank, MPI_Win in) {
  MPI_Aint bytes = 0;
  int unit = 0;
  void* memory = nullptr;
  MPI_Win_shared_query(in, rank, &bytes, &unit, &memory);
  return static_cast<std::byte*>(memory);
}
std::atomic_ref<std::uint64_t> number_at(std::byte* memory) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory));
}

class mpi_world {
 public:
  // `stores`: windows are accessed by ordinary instructions.
  explicit mpi_world(bool stores) : stores_(stores) {
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

  // A window of the pair's memory, and one of a number, which both count up for each other.
  void open(perf::put_pair* data) {
    open_number(data->peer());
    const std::span<std::byte> in = data->in();
    const auto shared = shared_windows().find(in.data());
    makes_window_ = shared == shared_windows().end();
    if (makes_window_)
      MPI_Win_create(in.data(), static_cast<MPI_Aint>(in.size()), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_);
    else
      window_ = shared->second;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    if (stores_) there_ = memory_of(data->peer(), window_);
  }
  void open(perf::remote_count*) { open_number(1); }
  void close() {
    if (window_ != MPI_WIN_NULL) {
      MPI_Win_unlock_all(window_);
      if (makes_window_) MPI_Win_free(&window_);
      window_ = MPI_WIN_NULL;
    }
    MPI_Win_unlock_all(numbers_);
    free_shared(number_, sizeof(std::uint64_t));
  }

  void run_rounds(perf::put_pair* data, std::int64_t rounds) {
    const bool first = data->begins();
    const int peer = data->peer();
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (first) put_signal(data->out(), peer);
      wait_signal();
      data->sample();
      if (!first) put_signal(data->out(), peer);
    }
  }

  void run_rounds(perf::remote_count* data, std::int64_t rounds) {
    if (!data->begins()) return;
    const std::uint64_t one = 1;
    for (std::int64_t round = 0; round < rounds; ++round) {
      std::uint64_t before = 0;
      if (stores_) {
        before = number_at(number_there_).fetch_add(one);
      } else {
        MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 1, 0, MPI_SUM, numbers_);
        MPI_Win_flush(1, numbers_);
      }
      data->sample(before);
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
  void open_number(int peer) {
    number_ = allocate_shared(sizeof(std::uint64_t));
    numbers_ = shared_windows().at(number_);
    number_there_ = memory_of(peer, numbers_);
    number_at(number_) = sent_ = come_ = 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, numbers_);
    MPI_Win_sync(numbers_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  void put_signal(std::span<const std::byte> data, int peer) {
    ++sent_;
    if (stores_) {
      std::memcpy(there_, data.data(), data.size());
      number_at(number_there_).store(sent_, std::memory_order_release);
      return;
    }
    MPI_Put(data.data(), count_of(data.size()), MPI_BYTE, peer, 0, count_of(data.size()), MPI_BYTE, window_);
    MPI_Win_flush(peer, window_);
    MPI_Put(&sent_, 1, MPI_UINT64_T, peer, 0, 1, MPI_UINT64_T, numbers_);
    MPI_Win_flush(peer, numbers_);
  }
  // Where MPI puts by messages, it has to be called for them to come.
  void wait_signal() {
    ++come_;
    for (unsigned looks = 1; number_at(number_).load(std::memory_order_acquire) < come_; ++looks) {
      if (stores_ || looks % 16 != 0) continue;
      int any = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
    }
    MPI_Win_sync(window_);
  }

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

  const bool stores_;
  int rank_ = 0, size_ = 0;
  MPI_Win window_ = MPI_WIN_NULL, numbers_ = MPI_WIN_NULL;
  bool makes_window_ = false;
  std::byte *there_ = nullptr, *number_ = nullptr, *number_there_ = nullptr;
  std::uint64_t sent_ = 0, come_ = 0;
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
  const bool shared = chosen.where == perf::memory::shared, stores = chosen.access == "store";
  if (stores && !shared && chosen.what == perf::command::put_signal) {
    std::fprintf(stderr, "%s: --access store needs --memory shared\n", names.program.c_str());
    return 2;
  }
  MPI_Init(&argc, &argv);
  mpi_world world(stores);
  int code = 1;
  try {
    code = perf::measure_all_blocking(world, chosen, names, shared ? shared_memory : perf::ordinary_memory);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: rank %d: %s\n", names.program.c_str(), world.rank(), failure.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
