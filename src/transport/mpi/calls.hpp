// SPDX-License-Identifier: Apache-2.0
// The MPI calls that tutti makes. A module (mpi_module.cpp, built where MPI is installed) implements them and is
// opened at run time, so neither tutti nor a program links MPI. Tests implement them themselves.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::transport::mpi {

// Changes with every change of `calls`: a module of another version is rejected.
inline constexpr std::uint32_t calls_version = 4;
inline constexpr const char* calls_symbol = "tutti_mpi_calls";

// MPI handles are integers in one implementation and pointers in another; here they are words.
using communicator_word = std::uint64_t;
using request_word = std::uint64_t;
using message_word = std::uint64_t;

// Functions return MPI's error code, 0 for success. Only init and finalize block. One thread calls at a time.
class calls {
 public:
  const std::uint32_t version = calls_version;

  // Name and version of the implementation, for people.
  virtual std::string describe() = 0;
  virtual std::string explain(int code) = 0;

  // Whether MPI has been initialised, by anybody, and whether it has been finalised. `usable`, in between: the
  // calling thread may call it although others run.
  virtual int state(int* initialized, int* finalized, int* usable) = 0;
  // Initialises MPI. `usable`: this thread and others may call it, one at a time.
  virtual int init(int* usable) = 0;
  virtual int finalize() = 0;
  virtual void abort(int code) = 0;
  virtual int rank_and_size(int* rank, int* size) = 0;

  // Duplicates the communicator of all processes; the duplicate returns errors. `made` is valid when the
  // request has ended.
  virtual int start_duplicate(communicator_word* made, request_word* request) = 0;
  virtual int return_errors(communicator_word on) = 0;
  // Gathers `bytes` from each process, by rank, into `all`.
  virtual int start_all_gather(communicator_word on, const void* mine, int bytes, void* all,
                               request_word* request) = 0;
  virtual int start_barrier(request_word* request) = 0;  // of all processes

  virtual int start_send(communicator_word on, const void* from, int bytes, int peer, int tag,
                         request_word* request) = 0;
  // Finds the next message from any process, in each sender's order. From then on only start_receive() gets
  // it.
  virtual int find_message(communicator_word on, int* found, int* peer, int* tag, int* bytes,
                           message_word* message) = 0;
  virtual int start_receive(message_word* message, void* into, int bytes, request_word* request) = 0;
  // Lets all requests progress. A request that has ended is gone.
  virtual int test(request_word* request, int* ended) = 0;

 protected:
  ~calls() = default;
};

// The one function of a module, named calls_symbol, with C linkage.
using calls_function = calls* (*)();

// The calls of TUTTI_MPI_MODULE, where that is set: a module of tutti, or an MPI's libmpi_abi.so.1. Otherwise of
// the first of these that can be opened:
//
// 1. the MPI that the program is linked with, and no other;
// 2. libmpi_abi.so.1 in the library folder beside the mpirun that started this process;
// 3. libtutti_mpi_openmpi.so, libtutti_mpi_mpich.so or libtutti_mpi_other.so, first the one that belongs to that
//    mpirun; each beside the program, then in the library folder beside the program's `bin`, then where tutti
//    was installed;
// 4. the libmpi_abi.so.1 that the dynamic linker finds; before 3 where no mpirun started this process.
//
// Open until the process ends. Throws errc::not_supported, saying where was looked and what to install.
calls& open_module();

}  // namespace tutti::transport::mpi
