// SPDX-License-Identifier: Apache-2.0
// An MPI with all ranks in this process: an mpi::calls that keeps messages in memory and behaves in any way
// that MPI allows. Sends end when the test lets them, receives return parts, calls fail.
#pragma once

#include "transport/mpi/calls.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace mpi_test {

class fabric {
 public:
  explicit fabric(int size);
  ~fabric();
  // Those of rank `rank`. `world`: its communicator.
  tutti::transport::mpi::calls& calls_of(int rank);
  static constexpr tutti::transport::mpi::communicator_word world = 1;

  // From now on sends of more than `bytes` end only when the receiver has the data (MPI's own rendezvous).
  // Their memory is read as late as that.
  void buffer_up_to(std::size_t bytes) { buffered_bytes_ = bytes; }
  // Started receives do not end while this is set.
  void hold_receives(bool hold) { hold_receives_ = hold; }
  // Calls of this rank return `code`: sends to `peer` (-1: to all), or probes.
  void break_sends(int rank, int peer, int code);
  void break_finding(int rank, int code);

  // Initialisation, end and collectives, for tests of mpi::process.
  struct life {
    int initialized = 0;
    int finalized = 0;
    int aborted = 0;  // the code, or 0
    int usable = 1;
    int init_code = 0;
    bool init_hangs = false;
    bool barrier_hangs = false;
  };
  life& life_of(int rank);
  std::size_t undelivered() const;  // messages not received yet

 private:
  struct message;
  struct request;
  struct place;

  const int size_;
  mutable std::mutex mutex_;
  std::size_t buffered_bytes_ = ~std::size_t{0};
  bool hold_receives_ = false;
  std::uint64_t next_word_ = 2;
  std::vector<std::shared_ptr<place>> places_;
  struct collective_call;
  std::vector<std::unique_ptr<collective_call>>
      collectives_;  // collectives, in the order of their first rank
};

}  // namespace mpi_test
